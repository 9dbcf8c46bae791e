"""`python -m benchmarks.seen [--only PART …] [--turns N] [--json FILE]`: what people see of Burnish."""

import argparse
import sys
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar
from benchmarks.seen import pages

PARTS = ("pages",)
BARS: tuple[Bar, ...] = (*pages.BARS,)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seen", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument("--turns", type=int, default=1_000_000, help="turns in the journal behind the pages")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    figures: dict[str, float] = {}
    with bars.workplace(console, "seen") as (folder, tell):
        if "pages" in (given.only or PARTS):
            figures |= pages.measure(folder, tell, given.turns)
    bars.show(console, "seen", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


if __name__ == "__main__":
    main()
