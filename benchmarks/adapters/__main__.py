"""`python -m benchmarks.adapters [--only PART …] [--json FILE]`: error rates and costs of promotion and rollback."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import bars
from benchmarks.adapters import personal, rollbacks, sequences, stalls, swaps
from benchmarks.bars import Bar, Figures, Tell

Part = tuple[str, Callable[[Path, Tell], Figures], Sequence[Bar]]
"""A part: its name, its measurement (called with a folder of its own), and the bars on its figures."""
PARTS: tuple[Part, ...] = (
    ("sequences", sequences.measure, sequences.BARS),
    ("swaps", swaps.measure, swaps.BARS),
    ("stalls", stalls.measure, stalls.BARS),
    ("rollbacks", rollbacks.measure, rollbacks.BARS),
    ("personal", personal.measure, personal.BARS),
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=(__doc__ or "").split("\n\n")[0])
    names = [name for name, *_ in PARTS]
    parser.add_argument("--only", choices=names, action="append", help="measure only this part; repeatable")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    figures: dict[str, float] = {}
    with bars.workplace(console, "adapters") as (folder, tell):
        for name, measure, _ in PARTS:
            if name in (given.only or names):
                (folder / name).mkdir()
                figures |= measure(folder / name, tell)
    all_bars = [bar for *_, its_bars in PARTS for bar in its_bars]
    bars.show(console, "adapters", all_bars, figures)
    bars.show_rest(console, all_bars, figures)
    sys.exit(bars.finish(console, all_bars, figures, given.json))


if __name__ == "__main__":
    main()
