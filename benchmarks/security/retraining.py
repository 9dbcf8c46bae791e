"""What retraining without a forgotten user costs: its score against that of a run that never had the user.

Both runs are the safety drill's without liars (benchmarks/learning/drill), with the sandbox's model and learning rate,
and all defences but the operator's prompts. In the first, one of twenty users is forgotten at the end, and the live
version is made again. In the second, that user never was. The users' turns fall differently in the two, so two scores
differ also by chance: the bar is for the difference between the means over seeds.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.bars import Tell
from benchmarks.learning import engine, loop, stack
from benchmarks.learning.drill import state, world
from benchmarks.learning.drill.arms import ARMS, SANDBOX_RATE
from benchmarks.learning.drill.looks import Look, Looks
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.stack import Stack
from benchmarks.learning.style.talk import Talk
from burnish.adapters.registry import agents
from burnish.adapters.verbs import privacy
from burnish.errors import BurnishError
from burnish.learner.run.retrain import Retrained, retrain
from burnish.records import Who

N_SEEDS = 4
N_INTERACTIONS = 320
"""Of all twenty users. The run without one of them has a twentieth less."""
ACTOR = "benchmark"
PATIENCE = 120.0
"""Seconds for the erasure."""


def measure(folder: Path, tell: Tell, n: int = N_INTERACTIONS, n_seeds: int = N_SEEDS) -> dict[str, float]:
    """The benchmark's figures, after `n` interactions: means over the seeds, and the gap between two of them."""
    found = [asyncio.run(_of_seed(folder / str(seed), tell, n, seed)) for seed in range(n_seeds)]
    means = {key: mean(figures[key] for figures in found) for key in found[0]}
    gaps = [abs(each["retrain_never"] - each["retrain_score"]) for each in found]
    return {
        "retrain_gap": abs(means["retrain_never"] - means["retrain_score"]),
        "retrain_gap_worst": max(gaps),
        **means,
    }


async def _of_seed(folder: Path, tell: Tell, n: int, seed: int) -> dict[str, float]:
    users = world.people(seed, 0.0)
    gone = users[0].name
    began = time.monotonic()
    async with engine.running(folder / "engine", 1) as shared:
        with_user, made, again = await _forgotten(folder, shared, seed, users, n, gone, tell)
        others = [user for user in world.people(seed, 0.0) if user.name != gone]
        n_others = round(n * len(others) / len(users))
        async with _running(folder / "without", shared, seed) as running:
            without = await _taught(running, shared, others, n_others)
    tell(f"without {gone}: {without.served:.3f} (v{without.live}), never heard of in {n_others} interactions")
    return {
        "retrain_score": again.learner,
        "retrain_never": without.served,
        "retrain_before": with_user.served,
        "retrain_live": float(again.live == again.newest),
        "retrain_steps": float(made.n_steps),
        "retrain_rows": float(made.n_rows),
        "retrain_rows_gone": float(made.n_gone),
        "retrain_seconds": round(time.monotonic() - began, 1),
    }


async def _forgotten(
    folder: Path, shared: SharedEngine, seed: int, users: Sequence[Any], n: int, gone: str, tell: Tell
) -> tuple[Look, Retrained, Look]:
    """The look at a run with all users, what retraining made of it without one of them, and the look at that."""
    async with _running(folder / "with", shared, seed) as running:
        before = await _taught(running, shared, users, n)
        tell(f"with {gone}: {before.served:.3f} (v{before.live}) after {n} interactions")
        with running.journal.write() as session:
            agents.set_paused(session, running.agent, True, actor=ACTOR)
            privacy.forget(session, ("default", "user", gone), actor=ACTOR)
        await _erased(running, ("default", "user", gone))
        made = await asyncio.to_thread(retrain, running.settings, running.journal, running.agent, actor=ACTOR)
        if made.version is None:
            raise BurnishError(f"expected a retrained version, got {made}")
        await loop.catch_up(running, 0, heeds_holds=True)
        looks = Looks(running, shared)
        try:
            after = await looks.look(await asyncio.to_thread(state.read, running))
        finally:
            await looks.close()
        tell(f"{made.version} from {made.start} in {made.n_steps} steps: {after.learner:.3f}; v{after.live} is live")
        return before, made, after


def _running(folder: Path, shared: SharedEngine, seed: int) -> Any:
    """A run's parts."""
    flags = {**ARMS["unexamined-0"].flags(seed), "learner.learning_rate": SANDBOX_RATE}
    return stack.running(folder, shared, stack.agent_name("retrain", seed), flags, folder.parent / "cache")


async def _taught(running: Stack, shared: SharedEngine, users: Sequence[Any], n: int) -> Look:
    """Let the users talk in rounds, as in the drill, and look at the end."""
    talk = Talk(running.client, running.agent, users, None, is_named=True)
    while talk.n_had < n:
        await talk.round(min(world.ROUND, n - talk.n_had))
        await loop.catch_up(running, talk.n_had, heeds_holds=True)
        await asyncio.to_thread(loop.end_hold_and_resume, running)
    looks = Looks(running, shared)
    try:
        return await looks.look(await asyncio.to_thread(state.read, running))
    finally:
        await looks.close()


async def _erased(running: Stack, who: Who) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with running.journal.read() as session:
            if privacy.standing(session, who)["state"] == "done":
                return
        if time.monotonic() > deadline:
            raise BurnishError(f"the erasure did not end in {PATIENCE:g} s")
        await asyncio.sleep(0.2)
