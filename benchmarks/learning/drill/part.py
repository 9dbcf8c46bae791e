"""The safety drill as a part of the proof."""

import shutil
from collections.abc import Sequence

from benchmarks.learning.drill import world
from benchmarks.learning.drill.arms import ARMS, Arm
from benchmarks.learning.drill.run import play
from benchmarks.learning.drill.shown import shown
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Part, Wish
from benchmarks.learning.queue import Job, Tell
from benchmarks.learning.results import Results


def missing(results: Results, wish: Wish) -> Sequence[Job]:
    """The runs to do: seed by seed, so that all arms grow alike."""
    arms = [arm for name, arm in ARMS.items() if wish.arms is None or name in wish.arms]
    return [
        _job(results, arm, seed)
        for seed in wish.seeds
        for arm in arms
        if wish.is_again or results.find(arm.name, seed, arm.flags(seed)) is None
    ]


def _job(results: Results, arm: Arm, seed: int) -> Job:
    async def run(engine: SharedEngine, tell: Tell) -> str:
        folder = results.folder / "runs" / f"{arm.name}-{seed}"
        result = await play(arm, seed, engine, folder, results.folder / "cache", tell)
        results.write(result)
        # what broke stays to be looked at; of what went well the result and what the parts said are enough
        (folder / "parts.log").replace(results.folder / arm.name / f"{seed}.log")
        shutil.rmtree(folder, ignore_errors=True)
        told = result.figures
        return f"{told['rollbacks']:.0f} rolled back, {told['refused']:.0f} refused, {told['seconds']:.0f} s"

    return Job(f"{arm.name} {seed}", world.N_INTERACTIONS, run)


PART = Part("drill", world.FILES, tuple(ARMS), missing, shown)
