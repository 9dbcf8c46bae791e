"""What the drill's results show, as every part offers it."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.learning.drill import figures, plots, report
from benchmarks.learning.drill.arms import ARMS
from benchmarks.learning.drill.figures import ByArm
from benchmarks.learning.results import Results


@dataclass(frozen=True, slots=True)
class DrillShown:
    """The results of all arms in one world."""

    results: ByArm
    world: str

    def show(self, console: Console) -> None:
        report.show(console, self.results, self.world)

    def draw(self, folder: Path) -> list[Path]:
        return plots.draw(folder, self.results)

    def figures(self) -> dict[str, float]:
        return {**report.shown(figures.barred(self.results)), **figures.flat(self.results)}

    def unmet(self) -> list[str]:
        return report.unmet(figures.barred(self.results))


def shown(results: Results) -> DrillShown:
    """What is there. A seed's own setting is part of its settings, so each seed is looked up with its own."""
    found = {name: results.all(name, arm.flags) for name, arm in ARMS.items()}
    return DrillShown({name: by_seed for name, by_seed in found.items() if by_seed}, results.world)
