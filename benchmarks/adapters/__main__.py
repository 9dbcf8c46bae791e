"""`python -m benchmarks.adapters [--only PART …] [--json FILE]`: versions swapped and taken back under load, many agents on one engine."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import bars
from benchmarks.adapters import stand, swaps
from benchmarks.bars import Bar, Tell

PARTS = ("swaps", "stalls", "rollbacks", "personal")
BARS: tuple[Bar, ...] = (
    ("failed requests, 1,000 swaps and 100 rollbacks under load", "failed", "0", lambda f: f["failed"] == 0),
    ("wrongly versioned ones", "wrong_version", "0", lambda f: f["wrong_version"] == 0),
    ("p99 inter-token latency, ≥ 1 swap/s vs none", "itl_p99_ratio", "≤ 1.25", lambda f: f["itl_p99_ratio"] <= 1.25),
    ("largest gap around a swap, beyond a quiet window's, ms", "swap_stall_ms", "≤ 40", lambda f: f["swap_stall_ms"] <= 40),
    ("rollback to the last request on the bad version, 4 gateways, ms", "rollback_ms", "≤ 100", lambda f: f["rollback_ms"] <= 100),
    ("wrongly versioned, 200 personal agents, 4 slots", "personal_wrong_version", "0", lambda f: f["personal_wrong_version"] == 0),
)  # fmt: skip


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--swaps", type=int, default=1000, help="swaps under load")
    parser.add_argument("--rollbacks", type=int, default=100, help="rollbacks among them")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone; may be given again")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    console = Console()
    with bars.workplace(console, "adapters") as (folder, tell):
        figures = _measure(given, folder, tell)
    bars.show(console, "adapters (candidates are tried without a retention set)", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


def _measure(given: argparse.Namespace, folder: Path, tell: Tell) -> dict[str, float]:
    figures: dict[str, float] = {}
    parts = given.only or PARTS
    if "swaps" in parts:
        with stand.running(folder / "swaps") as whole:
            figures |= swaps.measure(whole, given.swaps, given.rollbacks, tell)
    return figures


if __name__ == "__main__":
    main()
