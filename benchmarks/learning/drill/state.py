"""The state of a run between two rounds, read from the journal."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Mapped
from sqlmodel import col

from benchmarks.learning.stack import Stack
from burnish.adapters.registry import canaries, lifecycle
from burnish.journal.tables import InteractionRow, StepRow, VersionRow
from burnish.records import StepOutcome, VersionState

SETTLING = 30.0
"""Longest wait, in seconds, for watches to count every judged turn. The swapper looks about once a second."""
INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class State:
    """The live version, the canary beside it (None: none), and the newest published version."""

    live: int
    beside: int | None
    newest: int

    @property
    def serving(self) -> tuple[int, ...]:
        """The versions that can answer clients' requests."""
        return (self.live,) if self.beside is None else (self.live, self.beside)


def read(stack: Stack) -> State:
    """The journal's state now.

    A refused or rolled-back version still counts as the newest, because the learner made it.
    """
    with stack.journal.read() as session:
        newest = (
            session.connection()
            .execute(select(func.max(col(VersionRow.version))).where(col(VersionRow.agent) == stack.agent))
            .scalar()
        )
        split = canaries.split_of(session, stack.agent)
        return State(
            lifecycle.alias(session, stack.agent) or 0, split[0] if split and split[1] else None, int(newest or 0)
        )


async def settle(stack: Stack) -> None:
    """Wait until a running canary or watch has counted all judged turns, at most `SETTLING` seconds."""
    deadline = time.monotonic() + SETTLING
    while time.monotonic() < deadline:
        if await asyncio.to_thread(_is_settled, stack):
            return
        await asyncio.sleep(INTERVAL)


def counts(stack: Stack) -> dict[str, float]:
    """Counts of the run.

    They are steps by outcome, versions that went live, were refused or rolled back, and turns that caps left out or
    reduced.
    """
    with stack.journal.read() as session:
        run = session.connection()

        def tally(column: Mapped[str | None], agent: Mapped[str]) -> dict[str | None, int]:
            rows = run.execute(select(column, func.count()).where(agent == stack.agent).group_by(column))
            return {name: n for name, n in rows}

        outcomes = tally(col(StepRow.outcome), col(StepRow.agent))
        states = tally(col(VersionRow.state), col(VersionRow.agent))
        levels = tally(col(StepRow.level), col(StepRow.agent))
        metrics = run.execute(select(col(StepRow.metrics)).where(col(StepRow.agent) == stack.agent)).scalars().all()
    return {
        "n_published": float(outcomes.get(StepOutcome.PUBLISHED, 0)),
        "n_promoted": float(states.get(VersionState.LIVE, 0) + states.get(VersionState.RETIRED, 0)),
        "refused": float(states.get(VersionState.REFUSED, 0)),
        "rollbacks": float(states.get(VersionState.ROLLED_BACK, 0)),
        "n_yellow": float(levels.get("yellow", 0)),
        "n_red": float(levels.get("red", 0)),
        "n_capped": float(sum(each.get("n_capped", 0.0) for each in metrics)),
    }


def _is_settled(stack: Stack) -> bool:
    with stack.journal.read() as session:
        for row in canaries.running(session, stack.agent):
            seen: Any = row.evidence.get("comparison")
            if seen is None:
                continue
            of_version = (
                col(InteractionRow.agent) == stack.agent,
                col(InteractionRow.version) == row.version,
                col(InteractionRow.may_train).is_(True),
                col(InteractionRow.ended_at) > row.started_at,
                col(InteractionRow.is_ready).is_(True) | col(InteractionRow.spent_step).is_not(None),
            )
            n = session.connection().execute(select(func.count()).where(*of_version)).scalar_one()
            arm = seen["arms"][1]
            if arm["n"] + arm["n_capped"] < n:
                return False
    return True
