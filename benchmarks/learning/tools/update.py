"""One update: wait for a round's records and outcomes, ask for a step as an operator does, wait for its decision."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlmodel import col

from benchmarks.learning import loop
from benchmarks.learning.loop import INTERVAL, PATIENCE
from benchmarks.learning.stack import Stack
from burnish.adapters.registry import agents
from burnish.errors import Conflict
from burnish.journal.tables import FeedbackRow, InteractionRow, SampleRow, StepRow, VersionRow
from burnish.records import UNDECIDED, TargetKind
from burnish.sandbox.demo import facts


@dataclass(frozen=True, slots=True)
class Counts:
    """The users' activity so far: turns with a reply, sessions with an outcome, comments on a call."""

    n_turns: int
    n_sessions: int
    n_comments: int = 0


async def update(stack: Stack, counted: Counts) -> bool:
    """Do one update. False if the patience ended before the round was settled or the step was decided."""
    if not await _until(lambda: _is_settled(stack, counted)):
        return False
    if not stack.settings.learner.enabled:
        return True
    n_before = await asyncio.to_thread(_n_steps, stack)
    try:
        await asyncio.to_thread(_ask, stack)
    except Conflict as refusal:  # nothing is ready: no reply of the round can be learned from
        if refusal.code == "on_trial":
            raise
        return True
    return await _until(lambda: _is_decided(stack, n_before))


def odd_rewards(stack: Stack) -> tuple[int, int]:
    """(Rows with a step's own exit code in their reward, all rows with a reward) of the learner's rows.

    An outcome is +1 or -1. A step's own exit code makes another number of it.
    """
    mine = (
        select(col(SampleRow.reward))
        .join(StepRow, col(StepRow.step_id) == col(SampleRow.step_id))
        .where(col(StepRow.agent) == stack.agent, col(SampleRow.reward).is_not(None))
    )
    with stack.journal.read() as session:
        rewards = session.connection().execute(mine).scalars().all()
    return sum(reward not in (1.0, -1.0) for reward in rewards), len(rewards)


async def _until(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(is_so):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(INTERVAL)
    return True


def hints_of(stack: Stack) -> dict[str, int]:
    """The hints of all steps' rows, and those that the teacher or hint validation refused."""
    mine = (
        select(col(SampleRow.hint_status))
        .join(StepRow, col(StepRow.step_id) == col(SampleRow.step_id))
        .where(col(StepRow.agent) == stack.agent, col(SampleRow.hint).is_not(None))
    )
    with stack.journal.read() as session:
        skip_reasons = session.connection().execute(mine).scalars().all()
    return {
        "n_hints": len(skip_reasons),
        "n_hints_refused": sum(skip_reason is not None for skip_reason in skip_reasons),
    }


def _is_settled(stack: Stack, counted: Counts) -> bool:
    pulse = facts.pulse(stack.journal, stack.agent)
    met = select(func.count()).where(
        col(FeedbackRow.about) == TargetKind.SESSION, col(FeedbackRow.interaction_id).is_not(None)
    )
    # an outcome that arrives before its session also counts for the session's later turns
    with stack.journal.read() as session:
        n_met = int(
            session.connection()
            .execute(met.where(col(FeedbackRow.interaction_id) == col(InteractionRow.interaction_id)))
            .scalar_one()
        )
        commented = select(func.count()).where(
            col(FeedbackRow.comment) != "", col(FeedbackRow.interaction_id).is_not(None)
        )
        n_commented = int(session.connection().execute(commented).scalar_one()) if counted.n_comments else 0
    is_met = n_met >= counted.n_sessions and n_commented >= counted.n_comments
    return pulse.n_recorded >= counted.n_turns and not pulse.n_judging and is_met


def _ask(stack: Stack) -> None:
    with stack.journal.write() as session:
        agents.ask_step(session, stack.agent, actor="learning", reason="a round is over")


def _is_decided(stack: Stack, n_before: int) -> bool:
    """Whether nothing is asked for, open or on trial, and a step was taken or no row is left for one.

    A hold after a rollback is ended, because nobody else would decide by then.
    """
    loop.end_hold_and_resume(stack)
    # counted first, so that a step that begins between the two reads is open in the second
    has_stepped = _n_steps(stack) > n_before
    pulse = facts.pulse(stack.journal, stack.agent)
    if pulse.is_open or (pulse.n_ready and not has_stepped):
        return False
    # read last, because a step that ends leaves a version on trial
    on_trial = select(func.count()).where(col(VersionRow.agent) == stack.agent, col(VersionRow.state).in_(UNDECIDED))
    with stack.journal.read() as session:
        return (
            not agents.is_step_asked(session, stack.agent) and not session.connection().execute(on_trial).scalar_one()
        )


def _n_steps(stack: Stack) -> int:
    with stack.journal.read() as session:
        return int(
            session.connection().execute(select(func.count()).where(col(StepRow.agent) == stack.agent)).scalar_one()
        )
