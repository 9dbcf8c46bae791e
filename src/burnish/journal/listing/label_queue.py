"""Turns that a person should label: the judge abstained, its votes disagreed, chance chose them, or one person has
rated them and a second one should.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.hashing import place
from burnish.journal.listing import TEXTS, Place
from burnish.journal.listing.judge_figures import Voice
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
    SECOND = "second"


def queue(
    session: Session, agent: str, why: Why, *, before: Place | None, limit: int, voice: Voice | None = None
) -> tuple[list[Tree], str | None]:
    """The latest turns to label, each with what came back, and the place where the next page begins (None: no more).

    Turns that a user has rated are left out. For a second opinion they are wanted: those that one voice has rated, and
    not the `voice` of the person who asks. Neither the judge's verdict nor a rating is shown, because it would
    influence the label.
    """
    places, rest = newest(session, agent, Wanted(), before, TEXTS)
    names = [each.name for each in places]
    rated = _rated(session, names)
    if why is Why.SECOND:
        chosen = {name for name, voices in rated.items() if len(voices) == 1 and voice not in voices}
    else:
        chosen = _chosen(session, names, why) - rated.keys()
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


def _rated(session: Session, names: Sequence[str]) -> dict[str, set[Voice]]:
    """The turns about which users have said something, and who they were."""
    columns = (FeedbackRow.interaction_id, FeedbackRow.key_id, FeedbackRow.user)
    rated = select(*map(col, columns)).where(
        col(FeedbackRow.interaction_id).in_(names),
        col(FeedbackRow.source) == FeedbackSource.USER,
        col(FeedbackRow.is_deleted).is_(False),
    )
    rows: Any = session.connection().execute(rated)
    voices: dict[str, set[Voice]] = {}
    for name, key_id, user in rows:
        voices.setdefault(str(name), set()).add((str(key_id), user))
    return voices
