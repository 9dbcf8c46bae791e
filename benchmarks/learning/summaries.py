"""Summaries of finished runs: for every seed what the tables, bounds and pictures need, and nothing else.

A file holds one summary or several. `<part>/<arm>.json` in a folder is an arm of the report. A comparison of two
versions of the code, or of variants of an arm, is one file with a summary for each. Tables and pictures are drawn from
summaries only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.learning.results import Result, curve_of
from burnish.errors import BurnishError
from burnish.files import read_json, replace_text

SEED = "learner.recipe.seed"
"""The one setting in which the runs of an arm differ."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one arm in one world with the same settings, by seed.

    `world` is the world's hash (64 hex digits). `under` are the sandbox's settings, `settings` the arm's own without
    the seed.
    """

    part: str
    arm: str
    world: str
    under: Mapping[str, Any]
    settings: Mapping[str, Any]
    runs: Mapping[int, Result]

    def is_like(self, other: "Summary") -> bool:
        """Whether both are of the same arm in the same world with the same settings."""
        these, those = replace(self, runs={}), replace(other, runs={})
        return these == those


OF_GPU = "gpu"
"""The folder of results with the figures of `benchmarks.gpu`, which are no summaries."""


def shared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the seed."""
    return {key: value for key, value in settings.items() if key != SEED}


def read(path: Path) -> list[Summary]:
    """The summaries of a file, or of all `<part>/<arm>.json` of a folder, by name. Empty if the folder has none.

    Raises BurnishError if a file is missing or holds no summary.
    """
    if path.is_dir():
        files = [file for file in sorted(path.glob("*/*.json")) if file.parent.name != OF_GPU]
        return [summary for file in files for summary in read(file)]
    kept = read_json(path)
    if kept is None or "summaries" not in kept:
        got = "no file" if kept is None else "other JSON"
        raise BurnishError(f"expected summaries of runs in {path}, got {got}; check --summaries")
    return [_summary(each) for each in kept["summaries"]]


def update(folder: Path, fresh: Iterable[Summary]) -> None:
    """Merge summaries into the folder.

    Other seeds with the same world and settings stay. An arm with another world or settings is replaced.
    """
    for summary in fresh:
        path = folder / summary.part / f"{summary.arm}.json"
        write(path, merged(read(path) if path.exists() else [], [summary])[:1])


def merged(published: Sequence[Summary], fresh: Iterable[Summary]) -> list[Summary]:
    """The fresh summaries, each with the other seeds that were published with the same world and settings, then the
    published ones of other arms.
    """
    found = []
    for summary in fresh:
        before = next((each for each in published if each.is_like(summary)), None)
        found.append(_merged(before, summary) if before else summary)
    arms = {(each.part, each.arm) for each in found}
    return [*found, *(each for each in published if (each.part, each.arm) not in arms)]


def write(path: Path, summaries: Sequence[Summary]) -> None:
    """Write a file of summaries, one line a run, by one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, '{"summaries": [\n' + ",\n".join(map(_text, summaries)) + "\n]}\n")


def collect(folder: Path) -> list[Summary]:
    """A summary of every run in `folder`/<part>/<world>/<arm>/<seed>.json, of any settings and world.

    Raises BurnishError if there is none.
    """
    found: list[Summary] = []
    for path in sorted(each for each in folder.glob("*/*/*/*.json") if each.stem.isdigit()):
        kept = read_json(path) or {}
        run = Result.of(kept)
        one = Summary(path.parts[-4], run.arm, kept["world"], kept["under"], shared(run.settings), {run.seed: run})
        place = next((i for i, each in enumerate(found) if each.is_like(one)), None)
        if place is None:
            found.append(one)
        else:
            found[place] = replace(found[place], runs={**found[place].runs, **one.runs})
    if not found:
        raise BurnishError(f"expected runs as <part>/<world>/<arm>/<seed>.json in {folder}, got none; check --home")
    return found


def _merged(before: Summary, after: Summary) -> Summary:
    """The runs of both. For a seed that both have, the later one counts, unless it was cut earlier."""
    longer = {
        seed: run
        for seed, run in before.runs.items()
        if seed in after.runs and max(run.scores) > max(after.runs[seed].scores)  # the last milestone of each
    }
    return replace(after, runs={**before.runs, **after.runs, **longer})


def _text(summary: Summary) -> str:
    head = {key: getattr(summary, key) for key in ("part", "arm", "world", "under", "settings")}
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
    runs = ",\n".join(f'  "{seed}": {json.dumps(_run(run))}' for seed, run in sorted(summary.runs.items()))
    return "{\n" + "".join(lines) + ' "runs": {\n' + runs + "\n }\n}"


def _run(run: Result) -> dict[str, Any]:
    fields = {"date": run.date, "scores": run.scores, "figures": run.figures}
    return {**fields, "curves": run.curves} if run.curves else fields


def _summary(kept: Mapping[str, Any]) -> Summary:
    settings = kept["settings"]
    runs = {
        int(seed): Result(
            kept["arm"],
            int(seed),
            {**settings, SEED: int(seed)},
            curve_of(run["scores"]),
            run["figures"],
            {name: curve_of(curve) for name, curve in run.get("curves", {}).items()},
            run["date"],
        )
        for seed, run in kept["runs"].items()
    }
    return Summary(kept["part"], kept["arm"], kept["world"], kept["under"], settings, runs)
