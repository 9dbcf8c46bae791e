"""The learner's work from the journal: its steps, one step in full, and its present state. Read only."""

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.errors import BurnishError
from burnish.journal.listing.figures import fates
from burnish.journal.tables import AgentRow, GroupSampleRow, InteractionRow, SampleRow, StepRow, VersionRow
from burnish.journal.turns import waiting
from burnish.records import UNDECIDED, StepOutcome

Tree = dict[str, Any]


class UnknownStep(BurnishError):
    """No step made, or tried to make, this version."""


def runs(session: Session, agent: str, limit: int = 20) -> list[Tree]:
    """The agent's last steps, newest first, each with its rows used and rows without effect."""
    found = session.scalars(
        select(StepRow).where(col(StepRow.agent) == agent).order_by(col(StepRow.version).desc()).limit(limit)
    )
    return [_run(session, row) for row in found]


def story(session: Session, agent: str, version: int) -> Tree:
    """The step of `version`, its rows (reward then, hint, why a row or a hint was not used) and its shadow groups.

    Raises UnknownStep.
    """
    row = session.scalars(
        select(StepRow).where(col(StepRow.agent) == agent, col(StepRow.version) == version)
    ).one_or_none()
    if row is None:
        raise UnknownStep(f"no step made {agent}@v{version}; `burnish learner runs` lists the steps")
    rows = session.scalars(
        select(SampleRow).where(col(SampleRow.step_id) == row.step_id).order_by(col(SampleRow.interaction_id))
    )
    hinted, counted = ("hint", "hint_status"), ("skipped", "weight", "n_earlier", "logprob_change")
    columns = ("interaction_id", "reward", "reward_source", *hinted, *counted)
    taken = session.scalars(
        select(GroupSampleRow)
        .where(col(GroupSampleRow.step_id) == row.step_id)
        .order_by(col(GroupSampleRow.interaction_id))
    )
    groups = [
        {name: getattr(each, name) for name in ("interaction_id", "scores", "skipped", "weight")} for each in taken
    ]
    row_columns = [{name: getattr(each, name) for name in columns} for each in rows]
    return {**_run(session, row), "rows": row_columns, "groups": groups}


def standing(session: Session, agent: str) -> Tree:
    """The state of the learner of `agent`: waiting rows, rows of the step under way, the candidate on trial, why some
    of the latest turns are not trained on, the last step.
    """
    is_open = (col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.OPEN)
    taken = select(col(SampleRow.interaction_id)).where(
        col(SampleRow.step_id).in_(select(col(StepRow.step_id)).where(*is_open))
    )
    in_step = list(session.scalars(taken))
    mine = (col(InteractionRow.agent) == agent, *waiting(), col(InteractionRow.interaction_id).not_in(in_step))
    n_ready, oldest = (
        session.connection().execute(select(func.count(), func.min(col(InteractionRow.ended_at))).where(*mine)).one()
    )
    trial = session.scalars(
        select(col(VersionRow.version)).where(col(VersionRow.agent) == agent, col(VersionRow.state).in_(UNDECIDED))
    ).first()
    row = session.get(AgentRow, agent)
    last = runs(session, agent, 1)
    return {
        "agent": agent,
        "is_paused": bool(row and row.is_paused),
        "on_trial": trial,
        "n_ready": int(n_ready),
        "n_in_step": len(in_step),
        "oldest_waits_s": round(time.time() - oldest, 1) if oldest is not None else None,
        "dropped": fates(session, agent)["dropped"],
        "last_step": last[0] if last else None,
    }


def _run(session: Session, row: StepRow) -> Tree:
    counts = session.connection().execute(
        select(
            func.count(),
            func.count(col(SampleRow.skipped)),
            func.count(col(SampleRow.hint)),
            func.count(col(SampleRow.hint_status)),
        ).where(col(SampleRow.step_id) == row.step_id)
    )
    n_rows, n_idle, n_hints, n_refused = counts.one()
    metrics: Mapping[str, float] = row.metrics or {}
    return {
        "version": row.version,
        "parent": row.parent,
        "attempt": row.attempt,
        "outcome": row.outcome,
        "reason": row.reason,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "n_rows": n_rows,
        "n_idle": n_idle,
        "n_hints": n_hints,
        "n_hints_refused": n_refused,
        "level": row.level,
        "monitors": row.monitors or {},
        "metrics": dict(metrics),
    }
