"""One run of one arm with one seed: exam, talk while it learns, exams at the milestones, final figures."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning import loop, stack
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.stack import Stack
from benchmarks.learning.style import world
from benchmarks.learning.style.arms import Arm
from benchmarks.learning.style.exams import Exams
from benchmarks.learning.style.notes import Notes
from benchmarks.learning.style.talk import Talk
from burnish.config import BASE_NAME
from burnish.errors import BurnishError

MOST_LOST = 0.05
"""The largest share of turns without a reply. With more of them a run says nothing about learning."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run is: the world's length unless a test wants a short one.

    A run that `is_cut` has no figures of its end and no total costs.
    """

    n_interactions: int = world.N_INTERACTIONS
    milestones: Sequence[int] = world.MILESTONES
    is_cut: bool = False


WHOLE = Plan()
CUT = {n: Plan(n, [at for at in world.MILESTONES if at <= n], is_cut=True) for n in world.MILESTONES[1:-1]}
"""Runs that end early, by their number of interactions: for a gain at a milestone with more seeds."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the users waited for the learning loop, in seconds, and how often in vain."""

    seconds: float
    n_late: int


async def converse(
    running: Stack,
    talk: Talk,
    plan: Plan,
    examine: Callable[[int], Awaitable[float]],
    tell: Tell,
    patience: float = loop.PATIENCE,
) -> Waits:
    """Talk in rounds. After each the users wait until the learning loop has caught up.

    `examine` is called at the plan's milestones, except the one before the talk, and returns the score. Raises
    BurnishError if too many turns are lost.
    """
    waited, n_late, n_asked, n_before = 0.0, 0, 0, talk.n_had
    while n_asked < plan.n_interactions:
        n_round = min(world.ROUND, plan.n_interactions - n_asked)
        await talk.round(n_round)
        n_asked += n_round
        n_lost = n_asked - (talk.n_had - n_before)
        if n_lost > n_asked * MOST_LOST:
            raise BurnishError(
                f"expected at most {MOST_LOST:.0%} of the turns without a reply, got {n_lost} of {n_asked}; "
                f"the last failure: {running.client.failures[-1]}"
            )
        paused = time.monotonic()
        n_late += not await loop.catch_up(running, talk.n_had, patience=patience)
        waited += time.monotonic() - paused
        tell(n_round)
        if n_asked in plan.milestones:
            tell(0, f"score {await examine(n_asked):.2f} after {n_asked}")
    return Waits(waited, n_late)


async def play(
    arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell, plan: Plan = WHOLE
) -> Result:
    """Do the whole run in a fresh `folder`.

    Raises BurnishError if its parts do not start or too many turns are lost.
    """
    began = time.monotonic()
    agent = stack.agent_name(arm.name, seed)
    flags = arm.flags(seed)
    async with stack.running(folder, engine, agent, flags, cache) as running:
        notes = Notes() if arm.has_notes else None
        talk = Talk(running.client, agent, world.people(seed, arm.kind), notes)
        exams = Exams(running.client, agent, BASE_NAME, seed)
        scores: dict[int, float] = {}

        async def examine(n: int) -> float:
            scores[n] = await exams.score()
            return scores[n]

        await examine(0)
        waits = await converse(running, talk, plan, examine, tell)
        figures = {} if plan.is_cut else await _at_the_end(running, exams, talk, notes)
        figures |= {"n_failed": len(running.client.failures), "n_late": waits.n_late}
        if not plan.is_cut:
            figures |= {"seconds_waited": round(waits.seconds, 1), "seconds": round(time.monotonic() - began, 1)}
        (folder / "failures.txt").write_text("".join(f"{each}\n" for each in running.client.failures), encoding="utf-8")
    return Result(arm.name, seed, flags, scores, figures)


async def _at_the_end(running: Stack, exams: Exams, talk: Talk, notes: Notes | None) -> dict[str, float]:
    """The figures at a run's end, and the run's costs."""
    kept_answers, of_base = await exams.retention()
    return {
        "unseen": await exams.strangers(),
        "seen": await exams.again(notes),
        "retention": kept_answers / of_base,
        "retention_base": of_base,
        **_sessions(talk),
        **loop.costs(running),
        "n_interactions": talk.n_had,
        "n_requests": running.client.n_requests,
    }


def _sessions(talk: Talk) -> dict[str, float]:
    """Sessions until three in a row satisfied, as a mean over users.

    A user who never reached three counts with all sessions.
    """
    found = [talker.n_until_satisfied for talker in talk.talkers]
    counted = [n or len(talker.first_turns) for n, talker in zip(found, talk.talkers, strict=True)]
    return {
        "sessions_until_three": sum(counted) / len(counted),
        "users_satisfied": float(sum(n is not None for n in found)),
        "n_sessions": float(sum(len(talker.first_turns) for talker in talk.talkers)),
    }
