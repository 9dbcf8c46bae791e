"""`python -m benchmarks.security [--only PART …] [--json FILE]`: whether callers get what is theirs alone."""

import argparse
import sys
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar, Tell
from benchmarks.security import forgetting, matrix

PARTS = ("matrix", "forgetting")
BARS: tuple[Bar, ...] = (
    ("cells of the matrix that nobody has decided", "matrix_open", "0", lambda f: f["matrix_open"] == 0),
    ("cells of the matrix that answer otherwise", "matrix_wrong", "0", lambda f: f["matrix_wrong"] == 0),
    (
        "strings of a forgotten user that were planted",
        "forgotten_planted",
        "≥ 1,000",
        lambda f: f["forgotten_planted"] >= 1000,
    ),
    ("bytes of them that are left", "forgotten_found", "0", lambda f: f["forgotten_found"] == 0),
    ("share of another user's strings that are left", "forgotten_kept", "1", lambda f: f["forgotten_kept"] == 1),
    ("share of the versions that are listed right", "lineage_right", "1", lambda f: f["lineage_right"] == 1),
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    with bars.workplace(console, "security") as (folder, tell):
        figures = _measure(given, folder, tell)
    bars.show(console, "security", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


def _measure(given: argparse.Namespace, folder: Path, tell: Tell) -> dict[str, float]:
    figures: dict[str, float] = {}
    parts = given.only or PARTS
    if "matrix" in parts:
        tell("the authorisation matrix")
        figures |= matrix.measure(folder / "matrix", tell)
    if "forgetting" in parts:
        tell("what is left of a forgotten user")
        figures |= forgetting.measure(folder / "forgetting", tell)
    return figures


if __name__ == "__main__":
    main()
