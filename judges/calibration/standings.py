"""Standings: how much each judge in the journal has judged, and how often users agreed.

Agreement compares a judge's verdict on the reaction with the latest rating of the same reply by an authenticated user.
They agree if the rating's sign is the score. Verdicts on a user's comment are left out, because they were read from the
rating itself.
"""

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import and_, case, func, select
from sqlmodel import Session

from burnish.journal.tables import FeedbackRow, InteractionRow, JudgementRow
from burnish.judges.calibration.agreement import wilson
from burnish.records import FeedbackSource
from burnish.rewards import NEXT_STATE


@dataclass(frozen=True, slots=True)
class Standing:
    """One judge in the journal: turns with a verdict, abstentions, votes that could not be parsed, and users'
    agreement.
    """

    judge_id: str
    n_verdicts: int
    n_abstained: int
    n_failed_votes: int
    n_rated: int
    n_agreed: int
    first_at: float
    last_at: float

    @property
    def agreement(self) -> float | None:
        """Share of rated turns on which the user's sign equals the judge's. None if no user has rated any."""
        return self.n_agreed / self.n_rated if self.n_rated else None

    def to_json(self) -> dict[str, Any]:
        interval = wilson(self.n_agreed, self.n_rated)
        return asdict(self) | {"agreement": self.agreement, "agreement_interval": interval}


def standings(session: Session, agent: str | None = None) -> list[Standing]:
    """Every judge in the journal, busiest first. With `agent`, only on its turns. One read-only statement."""
    verdict, turn = JudgementRow.__table__.c, InteractionRow.__table__.c  # type: ignore[attr-defined]
    feedback = FeedbackRow.__table__.c  # type: ignore[attr-defined]
    by_time = func.row_number().over(
        partition_by=feedback.interaction_id, order_by=(feedback.created_at.desc(), feedback.feedback_id)
    )
    ratings = (
        select(feedback.interaction_id, feedback.rating, by_time.label("place"))
        .where(
            feedback.source == FeedbackSource.USER,
            feedback.rating.is_not(None),
            feedback.interaction_id.is_not(None),
            feedback.is_deleted.is_(False),
        )
        .subquery()
    )
    last = select(ratings.c.interaction_id, ratings.c.rating).where(ratings.c.place == 1).subquery()
    sign = case((last.c.rating > 0, 1), (last.c.rating < 0, -1), else_=0)
    is_rated = and_(last.c.rating.is_not(None), verdict.score.is_not(None), verdict.origin == NEXT_STATE)
    wanted = (
        select(
            verdict.judge_id,
            func.count(verdict.score).label("n_verdicts"),
            (func.count() - func.count(verdict.score)).label("n_abstained"),
            func.sum(verdict.n_failed).label("n_failed_votes"),
            func.sum(case((is_rated, 1), else_=0)).label("n_rated"),
            func.sum(case((and_(is_rated, sign == verdict.score), 1), else_=0)).label("n_agreed"),
            func.min(verdict.created_at).label("first_at"),
            func.max(verdict.created_at).label("last_at"),
        )
        .select_from(JudgementRow)
        .join(last, last.c.interaction_id == verdict.interaction_id, isouter=True)
        .group_by(verdict.judge_id)
        .order_by(func.count().desc(), verdict.judge_id)
    )
    if agent is not None:
        wanted = wanted.join(InteractionRow, turn.interaction_id == verdict.interaction_id).where(turn.agent == agent)
    return [Standing(**dict(row._mapping)) for row in session.connection().execute(wanted)]
