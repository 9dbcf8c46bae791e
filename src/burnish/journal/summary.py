"""Figures about one agent from the journal."""

from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Mapped
from sqlmodel import Session, col

from burnish.journal import shadows
from burnish.journal.jobs import counts
from burnish.journal.tables import AliasRow, FeedbackRow, InteractionRow, JudgeJob, LoadJob, StepRow, VersionRow


def summary(session: Session, agent: str) -> dict[str, Any]:
    """Counts by kind. `skip_reasons` counts why turns are not trained on."""
    execute = session.connection().execute

    def tally(column: Mapped[str | None], *where: ColumnElement[bool]) -> dict[str, int]:
        rows = execute(select(column, func.count()).where(*where).group_by(column)).tuples()
        return {str(value): int(number) for value, number in rows if value is not None}

    aliases = {row.alias: row.version for row in session.scalars(select(AliasRow).where(col(AliasRow.agent) == agent))}
    return {
        "aliases": aliases,
        "interactions": int(execute(select(func.count()).where(col(InteractionRow.agent) == agent)).scalar_one()),
        "ready": int(
            execute(
                select(func.count()).where(
                    col(InteractionRow.agent) == agent,
                    col(InteractionRow.is_ready).is_(True),
                    col(InteractionRow.spent_step).is_(None),
                    col(InteractionRow.skip_reason).is_(None),
                )
            ).scalar_one()
        ),
        "spent": int(
            execute(
                select(func.count()).where(
                    col(InteractionRow.agent) == agent, col(InteractionRow.spent_step).is_not(None)
                )
            ).scalar_one()
        ),
        "skip_reasons": tally(col(InteractionRow.skip_reason), col(InteractionRow.agent) == agent),
        "links": tally(col(InteractionRow.link_rule), col(InteractionRow.agent) == agent),
        **_feedback_counts(session),
        "steps": tally(col(StepRow.outcome), col(StepRow.agent) == agent),
        "versions": tally(col(VersionRow.state), col(VersionRow.agent) == agent),
        "shadow_groups": shadows.totals(session, agent),
        "judge_jobs": counts(session, JudgeJob),
        "load_jobs": counts(session, LoadJob),
    }


def _feedback_counts(session: Session) -> dict[str, int]:
    """Counts of feedback: all, waiting for its reply, expired, deleted."""
    is_there, is_open = col(FeedbackRow.is_deleted).is_(False), col(FeedbackRow.expired_at).is_(None)
    places: dict[str, tuple[ColumnElement[bool], ...]] = {
        "feedback": (),
        "feedback_pending": (is_there, is_open, col(FeedbackRow.interaction_id).is_(None)),
        "feedback_expired": (is_there, ~is_open),
        "feedback_deleted": (~is_there,),
    }
    count = select(func.count()).select_from(FeedbackRow)
    return {name: int(session.connection().execute(count.where(*where)).scalar_one()) for name, where in places.items()}
