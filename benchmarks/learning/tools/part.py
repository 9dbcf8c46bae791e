"""The tool agent as a part of the proof."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Part, Wish
from benchmarks.learning.queue import Job, Tell
from benchmarks.learning.results import Results
from benchmarks.learning.tools import figures, plots, report, world
from benchmarks.learning.tools.arms import ARMS, Arm
from benchmarks.learning.tools.figures import ByArm
from benchmarks.learning.tools.run import Plan, run


@dataclass(frozen=True, slots=True)
class ToolsShown:
    """The results of all arms in one world."""

    results: ByArm
    world: str

    def show(self, console: Console) -> None:
        report.show(console, self.results, self.world)

    def draw(self, folder: Path) -> list[Path]:
        return plots.draw(folder, self.results)

    def figures(self) -> dict[str, float]:
        return {**figures.barred(self.results), **figures.flat(self.results)}

    def unmet(self) -> list[str]:
        return report.unmet(figures.barred(self.results))


def shown(results: Results) -> ToolsShown:
    """What is there. A seed's own setting is part of its settings, so each seed is looked up with its own."""
    found = {name: results.all(name, arm.flags) for name, arm in ARMS.items()}
    return ToolsShown({name: by_seed for name, by_seed in found.items() if by_seed}, results.world)


def missing(results: Results, wish: Wish) -> Sequence[Job]:
    """The runs to do: seed by seed, so that all arms grow alike."""
    arms = [ARMS[name] for name in wish.arms or [name for name, arm in ARMS.items() if not arm.is_extra]]
    wanted = [(arm, seed) for seed in wish.seeds for arm in arms]
    return [
        _job(results, arm, seed)
        for arm, seed in wanted
        if wish.is_again or results.find(arm.name, seed, arm.flags(seed)) is None
    ]


def _job(results: Results, arm: Arm, seed: int) -> Job:
    async def do(engine: SharedEngine, tell: Tell) -> str:
        folder = results.folder / "runs" / f"{arm.name}-{seed}"
        result = await run(arm, seed, engine, folder, results.folder / "cache", tell, Plan())
        results.write(result)
        # what broke stays to be looked at; of what went well the result and what the parts said are enough
        (folder / "parts.log").replace(results.folder / arm.name / f"{seed}.log")
        shutil.rmtree(folder, ignore_errors=True)
        curve = " ".join(f"{score:.2f}" for score in result.scores.values())
        return f"{curve}, {result.figures['n_failed']:.0f} failed, {result.figures['seconds']:.0f} s"

    return Job(f"{arm.name} {seed}", world.N_SESSIONS, do)


PART = Part("tools", world.FILES, tuple(ARMS), missing, shown)
