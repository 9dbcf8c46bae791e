"""The tool agent as a part of the benchmark."""

from benchmarks.learning.columns import ByArm
from benchmarks.learning.part import Part, Tables, curve
from benchmarks.learning.tools import figures, plots, report, world
from benchmarks.learning.tools.arms import ARMS
from benchmarks.learning.tools.run import run


def _figures(results: ByArm) -> dict[str, float]:
    return {**figures.barred(results), **figures.flat(results)}


TABLES = Tables(report.show, plots.draw, _figures, lambda results: report.unmet(figures.barred(results)))
USUAL = tuple(name for name, arm in ARMS.items() if not arm.is_extra)
PART = Part("tools", world.FILES, ARMS, USUAL, world.N_SESSIONS, run, curve, TABLES)
