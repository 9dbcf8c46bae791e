"""`python -m benchmarks.learning`: whether Burnish learns from its (simulated) users, with controls and seeds.

Finished runs are kept under `.work/results/`. `--report` writes a summary of each arm into `docs/results/` and draws
tables and pictures from all summaries there. Runs in either place are not repeated, except with `--again`. So a
benchmark can go on on another machine.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.bars import make_console
from benchmarks.learning import engine, queue, summaries
from benchmarks.learning.drill.part import PART as DRILL
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Choice, Part, Runs
from benchmarks.learning.queue import Job
from benchmarks.learning.results import Results
from benchmarks.learning.style.part import PART as STYLE
from benchmarks.learning.summaries import Summary
from benchmarks.learning.tools.part import PART as TOOLS
from burnish import logs
from burnish.config import SANDBOX_MODEL
from burnish.errors import BurnishError

PARTS: tuple[Part, ...] = (STYLE, TOOLS, DRILL)
HOME = Path(".work") / "results"
SUMMARIES = Path("docs") / "results"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Parts that share a command line. `n_seeds` is the usual number of seeds, `engine` gives the shared engine's
    settings (dotted), `n_together` is the usual number of concurrent runs.
    """

    name: str
    what: str
    parts: Sequence[Part]
    n_seeds: int
    engine: Callable[[], Mapping[str, Any]]
    n_together: int = 1


LEARNING = Benchmark("benchmarks.learning", (__doc__ or "").split("\n\n")[0], PARTS, 8, lambda: engine.SANDBOX, 2)


def main(arguments: Sequence[str] | None = None, benchmark: Benchmark = LEARNING) -> None:
    """Read the command line, do the missing runs, print all results.

    Exits with 1 if a run failed or a bar is missed.
    """
    given = _read(arguments, benchmark)
    console = make_console()
    # a supervisor's lines would break the progress bar, and a file already has each part's output
    logs.configure("console", "learning")
    if given.collect is not None:
        collected = summaries.collect(given.home)
        summaries.write(given.collect, collected)
        console.print(f"{len(collected)} summaries written to {given.collect}", highlight=False)
        return
    parts = [part for part in benchmark.parts if part.name in (given.only or [part.name])]
    folders = {part.name: part.results(given.home) for part in parts}
    faults: list[str] = []
    if not given.report:
        seeds = given.seeds or range(benchmark.n_seeds)
        jobs = [(part.runs, job) for part in parts for job in _missing(part, folders[part.name], given, seeds)]
        faults = _work(jobs, given, console, benchmark.engine() if jobs else {})
    figures: dict[str, float] = {}
    unmet: list[str] = []
    for part in parts:
        found = _published(given.summaries)
        if given.summaries.suffix != ".json":
            fresh = part.summaries(folders[part.name])
            found = summaries.merged(found, fresh)
            if given.report:
                summaries.update(given.summaries, fresh)
        shown = part.shown(found, given.seeds)
        shown.show(console)
        figures |= shown.figures()
        unmet += shown.unmet()
        for path in shown.draw(given.plots) if given.plots else ():
            console.print(f"written to {path}", highlight=False)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {given.json}", highlight=False)
    for fault in faults:
        console.print(f"[red]failed:[/] {fault}", highlight=False)
    sys.exit(1 if faults or unmet else 0)


def _work(
    waiting: Sequence[tuple[Runs, Job]], given: argparse.Namespace, console: Console, own: Mapping[str, Any]
) -> list[str]:
    """Do the runs in order. Returns the failures, a line each."""
    model, faults = str(own.get("engine.model", SANDBOX_MODEL)), list[str]()
    for runs, group in groupby(waiting, key=lambda each: each[0]):
        n = given.side_by_side if runs is Runs.TOGETHER else 1
        used = SharedEngine("", "", model) if runs is Runs.APART else _engine(given, model)
        jobs = [job for _, job in group]
        faults += asyncio.run(queue.work(jobs, n, given.home / "engine", console, used, own))
    return faults


def _published(place: Path) -> list[Summary]:
    """The summaries of a file, or those of a folder, none if it does not exist."""
    return summaries.read(place) if place.suffix == ".json" or place.is_dir() else []


def _missing(part: Part, results: Results, given: argparse.Namespace, seeds: Sequence[int]) -> Sequence[Job]:
    """The missing runs of a part. If arms are named, only runs of the part's own arms among them."""
    named = None if given.arms is None else [arm for arm in given.arms if arm in part.arms]
    if named == []:
        return []
    return part.missing(results, Choice(named, seeds, given.again, given.until), _published(given.summaries))


def seeds_of(text: str) -> list[int]:
    """The seeds that `text` names: `8` for the first eight, `0-3` for a range, `0,5,7` or `0-3,5` for a list.

    Raises ArgumentTypeError for anything else.
    """
    try:
        parts = text.split(",")
        if len(parts) == 1 and text.isdecimal():
            parts = [f"0-{int(text) - 1}"]
        spans = [tuple(int(end) for end in part.split("-")) for part in parts]
        seeds = [seed for span in spans for seed in range(span[0], span[-1] + 1)]
        if all(len(span) <= 2 and span[0] <= span[-1] for span in spans) and len(set(seeds)) == len(seeds):
            return seeds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"expected 8 (the first eight), 0-3, 0,5,7 or 0-3,5 (0-0 for seed 0), got {text!r}"
    )


def _engine(given: argparse.Namespace, model: str) -> SharedEngine | None:
    return SharedEngine(given.engine.rstrip("/"), given.engine_key, model) if given.engine else None


def _stops(parts: Sequence[Part]) -> str:
    return "; ".join(f"{part.name} after {', '.join(map(str, part.cut))}" for part in parts if part.cut)


def _read(arguments: Sequence[str] | None, benchmark: Benchmark) -> argparse.Namespace:
    parts = benchmark.parts
    parser = argparse.ArgumentParser(prog=f"python -m {benchmark.name}", description=benchmark.what)
    names = [part.name for part in parts]
    parser.add_argument("--only", choices=names, action="append", help="only this part; repeatable")
    parser.add_argument("--arms", type=lambda text: text.split(","), help="only these arms, separated by commas")
    parser.add_argument(
        "--seeds",
        type=seeds_of,
        help=f"seeds: 8 (the first eight), 0-3, or 0-3,5,7 (default {benchmark.n_seeds}); with --report, print only "
        "these",
    )
    parser.add_argument(
        "--until",
        type=int,
        metavar="N",
        help=f"end runs of {_stops(parts)} early, for a gain at that point with more seeds",
    )
    parser.add_argument(
        "--side-by-side",
        type=int,
        default=benchmark.n_together,
        metavar="N",
        help="number of concurrent runs on the one engine (default %(default)s)",
    )
    parser.add_argument(
        "--engine", default="", metavar="URL", help="use this running vLLM, which must have room for all adapters"
    )
    parser.add_argument("--engine-key", default="", metavar="KEY", help="key of --engine")
    parser.add_argument("--again", action="store_true", help="repeat finished runs")
    parser.add_argument(
        "--report", action="store_true", help="run nothing; summarise the finished runs and print the tables"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--plots", type=Path, help="also draw the curves into this folder")
    parser.add_argument("--home", type=Path, default=HOME, help=f"folder of the finished runs (default {HOME})")
    parser.add_argument(
        "--summaries", type=Path, default=SUMMARIES, metavar="PATH",
        help=f"folder that --report writes and reads (default {SUMMARIES}), or a file that it only reads",
    )  # fmt: skip
    parser.add_argument(
        "--collect",
        type=Path,
        metavar="FILE",
        help="run nothing; write summaries of all runs, of any settings, to this file",
    )
    given = parser.parse_args(arguments)
    known = {arm for part in parts for arm in part.arms}
    unknown = [arm for arm in given.arms or () if arm not in known]
    if unknown:
        parser.error(f"no arm {', '.join(unknown)}; the arms are {', '.join(sorted(known))}")
    if given.until is not None and not all(
        given.until in part.cut for part in parts if part.name in (given.only or names)
    ):
        parser.error(f"--until {given.until}: only runs of {_stops(parts)} can end early; name the part with --only")
    if given.side_by_side < 1:
        parser.error(f"--side-by-side: expected at least 1, got {given.side_by_side}")
    return given


if __name__ == "__main__":
    try:
        main()
    except BurnishError as error:
        sys.exit(f"benchmarks.learning: {error}")
