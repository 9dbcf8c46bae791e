"""Which judges may speak. A judge is filed before it is asked, and its verdicts count only while it is fit.

`burnish.judges.permits` checks judges. The queries of `burnish.journal.evidence` leave the verdicts of others out.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select, update
from sqlmodel import Session, col

from burnish.journal.evidence import settle
from burnish.journal.jobs import insert_or_skip, release
from burnish.journal.tables import InteractionRow, JudgeCheckRow, JudgeJob, JudgementRow
from burnish.records import Fitness


def file(session: Session, judge_id: str, model: str, stands_for: str, golden: str) -> Fitness:
    """File a judge as unchecked, and return its state. If its name stands for another model now, or if the golden set
    has changed, it is unchecked again.
    """
    now = {"model": model, "stands_for": stands_for, "golden": golden}
    fresh: Mapping[str, Any] = {**now, "state": Fitness.UNCHECKED, "reason": "", "figures": {}, "checked_at": None}
    if insert_or_skip(session, JudgeCheckRow, {"judge_id": judge_id, **fresh}):
        return Fitness.UNCHECKED
    row = session.get_one(JudgeCheckRow, judge_id, populate_existing=True)
    if any(getattr(row, name) != value for name, value in now.items()):
        _set(session, [judge_id], fresh)
        _settle_turns_of(session, [judge_id])
        return Fitness.UNCHECKED
    return Fitness(row.state)


def conclude(
    session: Session, judge_ids: Collection[str], state: Fitness, reason: str, figures: Mapping[str, Any]
) -> None:
    """Store the outcome of a check of one model, filed under `judge_ids` (one for each rubric).

    The rewards of the turns that these judges have judged are computed again. A fit judge gets the turns that waited.
    """
    changes = {"state": state, "reason": reason, "figures": dict(figures), "checked_at": time.time()}
    _set(session, judge_ids, changes)
    _settle_turns_of(session, judge_ids)
    if state is Fitness.FIT:
        release(session, JudgeJob)


def filed(session: Session) -> dict[str, JudgeCheckRow]:
    """Every judge on file, by its id."""
    return {row.judge_id: row for row in session.scalars(select(JudgeCheckRow))}


def are_unfit(session: Session, models: Collection[str]) -> bool:
    """True if the latest check of each of `models` found it unfit."""
    mine = (col(JudgeCheckRow.model).in_(list(models)), col(JudgeCheckRow.checked_at).is_not(None))
    checked = session.scalars(select(JudgeCheckRow).where(*mine).order_by(col(JudgeCheckRow.checked_at)))
    latest = {row.model: row.state for row in checked}
    return latest == dict.fromkeys(models, Fitness.UNFIT)


def settle_silenced(session: Session) -> None:
    """Compute the unspent turns again that count as ready and have a verdict of a judge that may not speak."""
    silent = [name for name, row in filed(session).items() if row.state != Fitness.FIT]
    _settle_turns_of(session, silent, col(InteractionRow.is_ready).is_(True))


def _set(session: Session, judge_ids: Collection[str], changes: Mapping[str, Any]) -> None:
    mine = col(JudgeCheckRow.judge_id).in_(list(judge_ids))
    session.connection().execute(update(JudgeCheckRow).where(mine).values(**changes))


def _settle_turns_of(session: Session, judge_ids: Collection[str], *more: Any) -> None:
    unspent = (
        select(col(InteractionRow.interaction_id))
        .join(JudgementRow, col(JudgementRow.interaction_id) == col(InteractionRow.interaction_id))
        .where(
            col(JudgementRow.judge_id).in_(list(judge_ids)),
            col(InteractionRow.spent_step).is_(None),
            col(InteractionRow.skip_reason).is_(None),
            *more,
        )
        .distinct()
    )
    names = session.connection().execute(unspent).scalars().all()
    if names:
        settle(session, *names)
