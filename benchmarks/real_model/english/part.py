"""Plain English as a part of the benchmark."""

from functools import partial

from benchmarks.learning.part import Part, curve
from benchmarks.real_model import model
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import ARMS
from benchmarks.real_model.english.figures import REPORT
from benchmarks.real_model.english.run import CUT, play

EARLY = {n: partial(play, plan=plan) for n, plan in CUT.items()}
PART = Part(
    "english", world.FILES, ARMS, tuple(ARMS), world.N_INTERACTIONS, play, curve, REPORT.tables(), EARLY, model.UNDER
)
