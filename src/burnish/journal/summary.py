"""Figures about one agent, as the journal has them now."""

from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session

from burnish.journal import shadows
from burnish.journal.jobs import counts
from burnish.journal.tables import AliasRow, FeedbackRow, InteractionRow, JudgeJob, LoadJob, StepRow, VersionRow


def summary(session: Session, agent: str) -> dict[str, Any]:
    """Counts by kind; "skip_reasons" says why turns are not trained, with how many each."""
    turn: Any = InteractionRow
    step: Any = StepRow
    version: Any = VersionRow
    execute = session.connection().execute

    def tally(column: Any, *where: Any) -> dict[str, int]:
        rows = execute(select(column, func.count()).where(*where).group_by(column)).tuples()
        return {str(value): int(number) for value, number in rows if value is not None}

    aliases = {row.alias: row.version for row in session.scalars(select(AliasRow).where(_is(AliasRow, agent)))}
    return {
        "aliases": aliases,
        "interactions": int(execute(select(func.count()).where(turn.agent == agent)).scalar_one()),
        "ready": int(
            execute(
                select(func.count()).where(
                    turn.agent == agent, turn.is_ready.is_(True), turn.spent_step.is_(None), turn.skip_reason.is_(None)
                )
            ).scalar_one()
        ),
        "spent": int(
            execute(select(func.count()).where(turn.agent == agent, turn.spent_step.is_not(None))).scalar_one()
        ),
        "skip_reasons": tally(turn.skip_reason, turn.agent == agent),
        "links": tally(turn.link_rule, turn.agent == agent),
        **_feedback_counts(session),
        "steps": tally(step.outcome, step.agent == agent),
        "versions": tally(version.state, version.agent == agent),
        "shadow_groups": shadows.totals(session, agent),
        "judge_jobs": counts(session, JudgeJob),
        "load_jobs": counts(session, LoadJob),
    }


def _feedback_counts(session: Session) -> dict[str, int]:
    """How much was said, how much of it still waits for its reply, was given up, was taken back."""
    row: Any = FeedbackRow
    is_there, is_open = row.is_deleted.is_(False), row.expired_at.is_(None)
    places = {
        "feedback": (),
        "feedback_pending": (is_there, is_open, row.interaction_id.is_(None)),
        "feedback_expired": (is_there, ~is_open),
        "feedback_deleted": (~is_there,),
    }
    count = select(func.count()).select_from(FeedbackRow)
    return {name: int(session.connection().execute(count.where(*where)).scalar_one()) for name, where in places.items()}


def _is(table: Any, agent: str) -> Any:
    return table.agent == agent
