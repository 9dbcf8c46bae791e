"""`python -m benchmarks.learner [--json FILE]`: the learner's step beside TRL's, in time and memory."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import bars
from benchmarks.bars import Bar
from benchmarks.learner import comparison

BARS: tuple[Bar, ...] = (
    ("step time, TRL at its best micro-batch over ours", "speedup_vs_trl", "≥ 1.15", lambda f: f["speedup_vs_trl"] >= 1.15),
    ("TRL at its default over ours", "speedup_vs_trl_default", "≥ 1.15", lambda f: f["speedup_vs_trl_default"] >= 1.15),
    ("peak memory above the model, ours over TRL's", "memory_vs_trl", "≤ 0.6", lambda f: f["memory_vs_trl"] <= 0.6),
    ("largest difference of the losses", "loss_difference", "≤ 1e-4", lambda f: f["loss_difference"] <= 1e-4),
)


def main() -> None:
    """Read the command line, measure, print; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of ours and TRL")
    parser.add_argument("--rows", type=int, default=16, help="rows in a step")
    parser.add_argument("--longest", type=int, default=64, help="longest prompt and longest completion, in tokens")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each process")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    console = Console()
    with bars.workplace(console, "learner") as (folder, tell):
        figures = comparison.measure(
            folder, rounds=given.rounds, n_rows=given.rows, longest=given.longest, threads=given.threads, tell=tell
        )
    bars.show(console, "learner", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


if __name__ == "__main__":
    main()
