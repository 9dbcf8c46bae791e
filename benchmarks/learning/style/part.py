"""Style personalisation as a part of the benchmark."""

from functools import partial

from benchmarks.learning.columns import ByArm, shown
from benchmarks.learning.part import Part, Tables, curve
from benchmarks.learning.style import figures, plots, report, world
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.run import CUT, play


def _figures(results: ByArm) -> dict[str, float]:
    measured = figures.barred(results)
    n_seeds = min((each.n for each in measured.values()), default=0)
    return {**shown(measured), "n_seeds": n_seeds, **figures.flat(results)}


TABLES = Tables(report.show, plots.draw, _figures, lambda results: report.unmet(figures.barred(results)))
USUAL = tuple(name for name, arm in ARMS.items() if not arm.is_extra)
EARLY = {n: partial(play, plan=plan) for n, plan in CUT.items()}
PART = Part("style", world.FILES, ARMS, USUAL, world.N_INTERACTIONS, play, curve, TABLES, EARLY)
