"""Figures about one agent from the journal, which stay cheap however long it is."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select
from sqlalchemy.orm import Mapped
from sqlmodel import Session, col

from burnish.journal import shadows
from burnish.journal.jobs import COUNTED, counts
from burnish.journal.listing import LOOKS
from burnish.journal.tables import (
    AgentRow,
    AliasRow,
    FeedbackRow,
    InteractionRow,
    JudgeJob,
    LoadJob,
    StepRow,
    VersionRow,
)
from burnish.journal.turns import waiting


def summary(session: Session, agent: str) -> dict[str, Any]:
    """Counts by kind. `skip_reasons` counts why turns are not trained on.

    `interactions`, `ready` and the jobs of each state are counted up to `COUNTED`. `spent`, `skip_reasons` and `links`
    are those of the agent's latest `LOOKS` turns, the counts of feedback those of its tenant's latest `LOOKS` pieces.
    """
    execute = session.connection().execute
    mine = col(InteractionRow.agent) == agent

    def number(*where: ColumnElement[bool]) -> int:
        some = select(literal_column("1")).where(*where).limit(COUNTED).subquery()
        return int(execute(select(func.count()).select_from(some)).scalar_one())

    def tally(column: Mapped[str | None], *where: ColumnElement[bool]) -> dict[str, int]:
        rows = execute(select(column, func.count()).where(*where).group_by(column)).tuples()
        return {str(value): int(n) for value, n in rows if value is not None}

    columns = (InteractionRow.spent_step, InteractionRow.skip_reason, InteractionRow.link_rule)
    latest = select(*map(col, columns)).where(mine).order_by(col(InteractionRow.ended_at).desc()).limit(LOOKS)
    steps, skip_reasons, links = list(zip(*execute(latest), strict=True)) or ((), (), ())
    aliases = {row.alias: row.version for row in session.scalars(select(AliasRow).where(col(AliasRow.agent) == agent))}
    return {
        "aliases": aliases,
        "interactions": number(mine),
        "ready": number(mine, *waiting()),
        "spent": sum(_tally(steps).values()),
        "skip_reasons": _tally(skip_reasons),
        "links": _tally(links),
        **_feedback_counts(session, agent),
        "steps": tally(col(StepRow.outcome), col(StepRow.agent) == agent),
        "versions": tally(col(VersionRow.state), col(VersionRow.agent) == agent),
        "shadow_groups": shadows.totals(session, agent),
        "judge_jobs": counts(session, JudgeJob),
        "load_jobs": counts(session, LoadJob),
    }


def _tally(values: Iterable[Any]) -> dict[str, int]:
    return dict(Counter(str(value) for value in values if value is not None))


def _feedback_counts(session: Session, agent: str) -> dict[str, int]:
    """Counts of feedback: all, waiting for its reply, expired, deleted."""
    row = session.get(AgentRow, agent)
    columns = (FeedbackRow.is_deleted, FeedbackRow.expired_at, FeedbackRow.interaction_id)
    latest = (
        select(*map(col, columns))
        .where(col(FeedbackRow.tenant) == (row.tenant if row is not None else "default"))
        .order_by(col(FeedbackRow.created_at).desc())
        .limit(LOOKS)
    )
    found: Any = session.connection().execute(latest).all()
    there = [(expired_at, name) for is_deleted, expired_at, name in found if not is_deleted]
    return {
        "feedback": len(found),
        "feedback_pending": sum(expired_at is None and name is None for expired_at, name in there),
        "feedback_expired": sum(expired_at is not None for expired_at, _ in there),
        "feedback_deleted": len(found) - len(there),
    }
