"""Turns that a person should label: the judge abstained, its votes disagreed, or chance chose them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.hashing import place
from burnish.journal.listing import TEXTS, Place
from burnish.journal.listing.turns import Wanted, lines, newest
from burnish.journal.tables import FeedbackRow, JudgementRow, NextStateRow
from burnish.journal.turns import messages_of
from burnish.records import FeedbackSource

Tree = dict[str, Any]
_HIDDEN = ("reward", "withheld", "training_status", "fate")
ONE_IN = 10
"""One of so many turns is in the random sample."""


class Why(StrEnum):
    """Why a turn is in the queue."""

    ABSTAINED = "abstained"
    DISAGREED = "disagreed"
    SAMPLE = "sample"


def queue(session: Session, agent: str, why: Why, *, before: Place | None, limit: int) -> tuple[list[Tree], str | None]:
    """The latest turns to label, each with what came back, and the place where the next page begins (None: no more).

    Turns that a user has rated are left out. The judge's verdict is not shown, because it would influence the label.
    """
    places, rest = newest(session, agent, Wanted(), before, TEXTS)
    names = [each.name for each in places]
    chosen = _chosen(session, names, why) - _rated(session, names)
    kept = [each for each in places if each.name in chosen][:limit]
    found = []
    for line in lines(session, [each.name for each in kept]):
        came = session.get(NextStateRow, line["turn"])
        after = messages_of(session, came.message_digests) if came is not None else []
        shown = {key: value for key, value in line.items() if key not in _HIDDEN}
        found.append({**shown, "next_state": after})
    if len(kept) == limit:
        return found, str(kept[-1])
    return found, str(rest) if rest else None


def _chosen(session: Session, names: Sequence[str], why: Why) -> set[str]:
    if why is Why.SAMPLE:
        return {name for name in names if place(name) * ONE_IN < 1}
    rows = session.connection().execute(
        select(col(JudgementRow.interaction_id), col(JudgementRow.score), col(JudgementRow.votes)).where(
            col(JudgementRow.interaction_id).in_(names)
        )
    )
    if why is Why.ABSTAINED:
        return {str(name) for name, score, votes in rows if score is None and votes}
    return {str(name) for name, score, votes in rows if len({vote for vote in votes if vote is not None}) > 1}


def _rated(session: Session, names: Sequence[str]) -> set[str]:
    rated = select(col(FeedbackRow.interaction_id)).where(
        col(FeedbackRow.interaction_id).in_(names),
        col(FeedbackRow.source) == FeedbackSource.USER,
        col(FeedbackRow.is_deleted).is_(False),
    )
    return {str(name) for name in session.scalars(rated)}
