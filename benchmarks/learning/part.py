"""A part of the benchmark: its world and arms, its missing runs, and the tables of its results."""

import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from benchmarks.learning import frozen
from benchmarks.learning.columns import ByArm
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Job, Tell
from benchmarks.learning.results import UNDER, Result, Results
from benchmarks.learning.summaries import Summary, shared


@dataclass(frozen=True, slots=True)
class Choice:
    """The command line's choice: arms (None: all usual ones), seeds, whether finished runs are repeated.

    Runs go `until` so many interactions, one of the part's `cut`. None: to the world's end.
    """

    arms: Sequence[str] | None
    seeds: Sequence[int]
    is_again: bool
    until: int | None = None


class Runs(StrEnum):
    """How the runs of a part share the machine."""

    TOGETHER = "together"  # side by side on one engine
    ALONE = "alone"  # one at a time on that engine
    APART = "apart"  # one at a time, each with the engine that it starts itself


class AnyArm(Protocol):
    """One way to run a part's world."""

    @property
    def name(self) -> str: ...

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""


@dataclass(frozen=True, slots=True)
class Tables:
    """How a part prints results of its world. The last argument of `show` is the world's hash.

    `figures` are flat, for `--json`. A bar's own key is present only with enough seeds. `unmet` names the bars that are
    missed or have too few seeds.
    """

    show: Callable[[Console, ByArm, str], None]
    draw: Callable[[Path, ByArm], list[Path]]
    figures: Callable[[ByArm], dict[str, float]]
    unmet: Callable[[ByArm], list[str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """The results of all arms. `notes` are further remarks for the reader, a line each."""

    tables: Tables
    results: ByArm
    world: str
    notes: Sequence[str] = ()

    def show(self, console: Console) -> None:
        """Print the tables."""
        self.tables.show(console, self.results, self.world)
        for note in self.notes:
            console.print(note, highlight=False)

    def draw(self, folder: Path) -> list[Path]:
        """Write the pictures. Returns their paths."""
        return self.tables.draw(folder, self.results)

    def figures(self) -> dict[str, float]:
        return self.tables.figures(self.results)

    def unmet(self) -> list[str]:
        return self.tables.unmet(self.results)


Play = Callable[[Any, int, SharedEngine, Path, Path, Tell], Awaitable[Result]]
"""Arguments: arm, seed, engine, a fresh folder, the folder of a cache for all runs, and the progress function.

The engine of a run that is `Runs.APART` has no URL, only the model to start one with.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark.

    `world`: the files of its world. `usual`: the arms that run by default. `n`: the interactions or sessions of a run.
    `words` describes a run's result in a line. `cut`: other ways to play it, which end after so many interactions.
    `under`: the settings below those of the arms.
    """

    name: str
    world: Sequence[Path]
    arms: Mapping[str, AnyArm]
    usual: Sequence[str]
    n: int
    play: Play
    words: Callable[[Result], str]
    tables: Tables
    cut: Mapping[int, Play] = field(default_factory=dict)
    under: Mapping[str, Any] = field(default_factory=lambda: UNDER)
    runs: Runs = Runs.TOGETHER

    def results(self, home: Path) -> Results:
        """The finished runs of this part's world below `home`."""
        return Results(home / self.name, frozen.digest(self.world), self.under)

    def missing(self, results: Results, choice: Choice, published: Sequence[Summary] = ()) -> list[Job]:
        """The runs that are neither in `results` nor `published`, seed by seed, so that all arms grow alike."""
        arms = [self.arms[name] for name in choice.arms or self.usual]
        n = self.n if choice.until is None else choice.until
        return [
            self._job(results, arm, seed, n)
            for seed in choice.seeds
            for arm in arms
            if choice.is_again
            or not (
                _has_reached(n, results.find(arm.name, seed, arm.flags(seed)))
                or _has_reached(n, self._published(published, arm, seed))
            )
        ]

    def _published(self, summaries: Sequence[Summary], arm: AnyArm, seed: int) -> Result | None:
        """The run in a summary of this arm as it is today. None if there is none."""
        world = frozen.digest(self.world)
        present = (each for each in summaries if (each.part, each.arm) == (self.name, arm.name))
        return next((each.runs.get(seed) for each in present if self._is_present(each, world)), None)

    def summaries(self, results: Results) -> list[Summary]:
        """The available runs of each arm with its present settings. Each seed is found by its own settings."""
        found = {name: results.all(name, arm.flags) for name, arm in self.arms.items()}
        return [
            Summary(self.name, name, results.world, self.under, shared(self.arms[name].flags(0)), runs)
            for name, runs in found.items()
            if runs
        ]

    def shown(self, summaries: Sequence[Summary], seeds: Collection[int] | None = None) -> Shown:
        """The results of this part, of `seeds` only if given. Notes name results that do not match today's arms."""
        own = [summary for summary in summaries if summary.part == self.name]
        gone = [each.arm for each in own if each.arm not in self.arms]
        results: dict[str, dict[int, Result]] = {}
        for name in (*self.arms, *gone):
            runs = {seed: run for each in own if each.arm == name for seed, run in each.runs.items()}
            if shown := {seed: run for seed, run in runs.items() if seeds is None or seed in seeds}:
                results[name] = shown
        world = frozen.digest(self.world)
        others = [each.arm for each in own if each.arm in self.arms and not self._is_present(each, world)]
        notes: list[str] = []
        if others:
            notes.append(f"measured in another world or with other settings than today's: {', '.join(others)}")
        if gone:
            notes.append(f"arms that no longer exist, so they are only in --json: {', '.join(gone)}")
        return Shown(self.tables, results, ", ".join(sorted({each.world for each in own})) or world, notes)

    def _is_present(self, summary: Summary, world: str) -> bool:
        settings = shared(self.arms[summary.arm].flags(0))
        return (summary.world, summary.under, summary.settings) == (world, self.under, settings)

    def _job(self, results: Results, arm: AnyArm, seed: int, n: int) -> Job:
        play = self.play if n == self.n else self.cut[n]

        async def run(engine: SharedEngine, tell: Tell) -> str:
            folder = results.folder / "runs" / f"{arm.name}-{seed}"
            result = await play(arm, seed, engine, folder, results.folder / "cache", tell)
            results.write(result)
            # a failed run keeps its folder for inspection; of a good run the result and the log are enough
            (folder / "parts.log").replace(results.folder / arm.name / f"{seed}.log")
            shutil.rmtree(folder, ignore_errors=True)
            return self.words(result)

        return Job(f"{arm.name} {seed}", n, run)


def curve(result: Result) -> str:
    """A result in a line: its scores, the failures, and the time, which a cut run does not have."""
    curve_text = " ".join(f"{score:.2f}" for score in result.scores.values())
    took = f", {result.figures['seconds']:.0f} s" if "seconds" in result.figures else ""
    return f"{curve_text}, {result.figures['n_failed']:.0f} failed{took}"


def _has_reached(n: int, result: Result | None) -> bool:
    return result is not None and max(result.scores) >= n
