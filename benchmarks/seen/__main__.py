"""`python -m benchmarks.seen [--only PART …] [--json FILE]`: what people see of an agent, and what seeing costs."""

import argparse
import sys
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar, Tell
from benchmarks.seen import live, metrics, pages, slices, tasks, traced

PARTS = ("metrics", "pages", "slices", "tasks", "live", "traces")
BARS: tuple[Bar, ...] = (*metrics.BARS, *pages.BARS, *slices.BARS, *tasks.BARS, *live.BARS, *traced.BARS)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seen", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of the metrics")
    parser.add_argument(
        "--seconds",
        type=float,
        default=16.0,
        help="length of one measurement of the metrics; a scrape comes every 15 s",
    )
    parser.add_argument("--turns", type=int, default=1_000_000, help="turns in the journal")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    with bars.workplace(console, "seen") as (folder, tell):
        figures = _measure(given, folder, tell)
    bars.show(console, "seen", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


def _measure(given: argparse.Namespace, folder: Path, tell: Tell) -> dict[str, float]:
    figures: dict[str, float] = {}
    parts = given.only or PARTS
    if "metrics" in parts:
        figures |= metrics.measure(folder / "metrics", given.rounds, given.seconds, given.turns, tell)
    if "pages" in parts:
        figures |= pages.measure(folder / "pages", tell, given.turns)
    if "slices" in parts:
        figures |= slices.measure(tell)
    if "tasks" in parts:
        figures |= tasks.measure(folder / "tasks", tell)
    if "live" in parts:
        figures |= live.measure(folder / "live", tell)
    if "traces" in parts:
        figures |= traced.measure(folder / "traces", tell, given.turns)
    return figures


if __name__ == "__main__":
    main()
