"""The state of a run's learning loop, read from the journal: whether it has caught up, and its costs."""

import asyncio
import time

from sqlalchemy import func, select
from sqlmodel import col

from benchmarks.learning.stack import Stack
from burnish import serving_table
from burnish.adapters.registry import agents, canaries
from burnish.adapters.serving.prepare import routes_file
from burnish.journal import jobs, shadows
from burnish.journal.tables import JudgementRow, ShadowJob, VersionRow
from burnish.records import VersionState
from burnish.sandbox.demo import facts
from burnish.server.rollout.shadow_groups import picker

OPERATOR = "hurried operator"
PATIENCE = 300.0
"""Longest wait, in seconds, for the loop to catch up. After that the users continue, and the delay is counted."""
INTERVAL = 0.05


async def catch_up(stack: Stack, n_turns: int, *, heeds_holds: bool = False, patience: float = PATIENCE) -> bool:
    """Wait until `n_turns` are recorded and judged and a due step is decided. False if the patience ended first.

    `heeds_holds`: do not wait for a candidate while the agent is held, or for a step while learning is paused.
    """
    deadline = time.monotonic() + patience
    while not await asyncio.to_thread(_is_calm, stack, n_turns, heeds_holds):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(INTERVAL)
    return True


def _is_calm(stack: Stack, n_turns: int, heeds_holds: bool) -> bool:
    pulse = facts.pulse(stack.journal, stack.agent)
    is_due = stack.settings.learner.enabled and pulse.n_ready >= stack.settings.recipe.min_rows
    n_undecided = count_versions(stack, VersionState.CANDIDATE)
    if heeds_holds:
        with stack.journal.read() as session:
            row = agents.find(session, stack.agent)
            is_held, is_paused = row.held is not None, row.is_paused
        # a learner with an undecided candidate takes no step
        is_due = is_due and not is_paused and not n_undecided and not count_versions(stack, VersionState.CANARY)
        n_undecided = 0 if is_held else n_undecided
    is_busy = pulse.n_judging or pulse.is_open or is_due or n_undecided or _is_drawing(stack)
    return pulse.n_recorded >= n_turns and not is_busy


def _is_drawing(stack: Stack) -> bool:
    """Whether a turn waits for its shadow group. The number of groups must not depend on the speed of drawing."""
    if not stack.settings.has_groups:
        return False
    agent = serving_table.watch(routes_file(stack.settings)).current().agents[stack.agent]
    with stack.journal.read() as session:
        counts = jobs.counts(session, ShadowJob)
        waiting = picker.pick(session, agent, stack.settings)
    return bool(waiting or counts.get("queued") or counts.get("leased"))


def costs(stack: Stack) -> dict[str, float]:
    """Versions and their outcomes, trained turns, tokens drawn for shadow groups, and requested votes."""
    pulse = facts.pulse(stack.journal, stack.agent)
    with stack.journal.read() as session:
        ballots = session.connection().execute(select(col(JudgementRow.votes), col(JudgementRow.n_failed))).all()
        drawn = shadows.totals(session, stack.agent)
    return {
        "n_trained": pulse.n_spent,
        "n_versions": pulse.n_published,
        "n_refused": pulse.n_refused,
        "n_rolled_back": count_versions(stack, VersionState.ROLLED_BACK),
        "judge_calls": sum(len(votes) + n_failed for votes, n_failed in ballots) + drawn["judge_votes"],
        "shadow_tokens": drawn["tokens"],
    }


def count_versions(stack: Stack, state: VersionState) -> int:
    """How many versions of the agent are in this state."""
    with stack.journal.read() as session:
        return int(
            session.connection()
            .execute(
                select(func.count(col(VersionRow.version))).where(
                    col(VersionRow.agent) == stack.agent, col(VersionRow.state) == state
                )
            )
            .scalar_one()
        )


def end_hold_and_resume(stack: Stack) -> tuple[bool, bool]:
    """End a hold and resume learning, whatever the reason.

    Returns whether there was a hold, and whether learning was paused.
    """
    with stack.journal.read() as session:
        row = agents.find(session, stack.agent)
        was_held, was_paused = row.held is not None, row.is_paused
    if was_held or was_paused:
        with stack.journal.write() as session:
            if was_held:
                agents.end_hold(session, stack.agent, actor=OPERATOR)
                canaries.wake(session, stack.agent)
            if was_paused:
                agents.set_paused(session, stack.agent, False, actor=OPERATOR)
    return was_held, was_paused
