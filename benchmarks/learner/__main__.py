"""`python -m benchmarks.learner [--json FILE] [--only PART]`: the learner's step beside TRL's, in time and memory."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.learner import comparison

Bar = tuple[str, str, str, Callable[[Mapping[str, float]], bool]]
BARS: tuple[Bar, ...] = (
    ("step time, TRL at its best micro-batch over ours", "speedup_vs_trl", "≥ 1.15", lambda f: f["speedup_vs_trl"] >= 1.15),
    ("TRL at its default over ours", "speedup_vs_trl_default", "≥ 1.15", lambda f: f["speedup_vs_trl_default"] >= 1.15),
    ("peak memory above the model, ours over TRL's", "memory_vs_trl", "≤ 0.6", lambda f: f["memory_vs_trl"] <= 0.6),
    ("largest difference of the losses", "loss_difference", "≤ 1e-4", lambda f: f["loss_difference"] <= 1e-4),
)
PARTS = ("trl",)


def main() -> None:
    """Read the command line, measure, print; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone (may be repeated)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of ours and TRL")
    parser.add_argument("--rows", type=int, default=16, help="rows in a step")
    parser.add_argument("--longest", type=int, default=64, help="longest prompt and longest completion, in tokens")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each process")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    console = Console()
    with console.status("starting") as status, tempfile.TemporaryDirectory(prefix="burnish-learner-") as name:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

        figures = comparison.measure(
            Path(name), rounds=given.rounds, n_rows=given.rows, longest=given.longest, threads=given.threads, tell=tell
        )
    _show(console, figures)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {given.json}")
    sys.exit(0 if all(is_met(figures) for *_, is_met in _measured(figures)) else 1)


def _show(console: Console, figures: Mapping[str, float]) -> None:
    table = Table("what", "key", "figure", "bar", "", title="learner")
    for what, key, bar, is_met in _measured(figures):
        table.add_row(what, key, _text(figures[key]), bar, "✓" if is_met(figures) else "✗")
    console.print(table)
    rest = [key for key in figures if key not in {bar[1] for bar in BARS}]
    console.print(", ".join(f"{key} {_text(figures[key])}" for key in rest))


def _measured(figures: Mapping[str, float]) -> list[Bar]:
    return [bar for bar in BARS if bar[1] in figures]


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


if __name__ == "__main__":
    main()
