"""`python -m benchmarks.learner [--only PART] [--json FILE]`: step time and memory, time to live, serving beside it."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar, Tell
from benchmarks.learner import beside, comparison, live
from burnish import logs

BARS: tuple[Bar, ...] = (
    (
        "step time, TRL with its best micro-batch over ours",
        "speedup_vs_trl",
        "≥ 1.15",
        lambda f: f["speedup_vs_trl"] >= 1.15,
    ),
    (
        "step time, TRL with its defaults over ours",
        "speedup_vs_trl_default",
        "≥ 1.15",
        lambda f: f["speedup_vs_trl_default"] >= 1.15,
    ),
    ("peak memory above the model, ours over TRL's", "memory_vs_trl", "≤ 0.6", lambda f: f["memory_vs_trl"] <= 0.6),
    (
        "largest difference of the losses, ours and TRL's",
        "loss_difference",
        "≤ 1e-4",
        lambda f: f["loss_difference"] <= 1e-4,
    ),
    (
        "feedback that fills a batch to first token of the new version, s",
        "signal_to_live_s",
        "≤ 1.5 × step_s + 1",
        lambda f: f["signal_to_live_s"] <= 1.5 * f["step_s"] + 1.0,
    ),
    (
        "p99 of the gaps between tokens, learner stepping over idle",
        "serving_p99_ratio",
        "≤ 1.5",
        lambda f: f["serving_p99_ratio"] <= 1.5,
    ),
)


def main() -> None:
    """Read the command line, measure, print. Exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--only", action="append", choices=["trl", "live", "beside"], help="measure only these parts; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of ours and TRL")
    parser.add_argument("--rows", type=int, default=16, help="rows in a step")
    parser.add_argument("--longest", type=int, default=64, help="longest prompt and longest completion, in tokens")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each process")
    parser.add_argument("--live-rounds", type=int, default=7, help="batches to fill on a running stack")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each of the 12 windows beside serving")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    logs.configure("console", "benchmark")
    figures: dict[str, float] = {}
    with bars.workplace(console, "learner") as (folder, tell):

        def trl(place: Path, tell: Tell) -> dict[str, float]:
            sizes = {"n_rows": given.rows, "longest": given.longest, "threads": given.threads}
            return dict(comparison.measure(place, rounds=given.rounds, tell=tell, **sizes))

        parts: dict[str, Callable[[Path, Tell], dict[str, float]]] = {
            "live": lambda place, tell: asyncio.run(live.measure(place, rounds=given.live_rounds, tell=tell)),
            "beside": lambda place, tell: asyncio.run(
                beside.measure(place, rounds=6, seconds=given.seconds, tell=tell)
            ),
            "trl": trl,
        }
        for name, measure in parts.items():
            if name in (given.only or parts):
                (folder / name).mkdir()
                measured = measure(folder / name, tell)
                tell(
                    ", ".join(f"{key} {bars.text(value)}" for key, value in measured.items())
                )  # in case a later part fails
                figures |= measured
    bars.show(console, "learner", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


if __name__ == "__main__":
    main()
