"""The safety drill as a part of the benchmark."""

from benchmarks.learning.columns import ByArm, shown
from benchmarks.learning.drill import figures, plots, report, world
from benchmarks.learning.drill.arms import ARMS
from benchmarks.learning.drill.run import play
from benchmarks.learning.part import Part, Tables
from benchmarks.learning.results import Result


def _figures(results: ByArm) -> dict[str, float]:
    return {**shown(figures.barred(results)), **figures.flat(results)}


def _words(result: Result) -> str:
    counts = result.figures
    return f"{counts['rollbacks']:.0f} rolled back, {counts['refused']:.0f} refused, {counts['seconds']:.0f} s"


TABLES = Tables(report.show, plots.draw, _figures, lambda results: report.unmet(figures.barred(results)))
PART = Part("drill", world.FILES, ARMS, tuple(ARMS), world.N_INTERACTIONS, play, _words, TABLES)
