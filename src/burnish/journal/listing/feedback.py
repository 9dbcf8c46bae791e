"""The feedback on an agent's replies, newest first."""

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlmodel import Session, col

from burnish.journal.listing import LOOKS, Place
from burnish.journal.listing.turns import lines
from burnish.journal.tables import FeedbackRow, InteractionRow

Tree = dict[str, Any]
_SHOWN = (
    *("feedback_id", "interaction_id", "session_id", "about", "source", "user", "key_id", "rating", "score"),
    *("outcome", "label", "comment", "correction", "demonstration", "created_at"),
)


class Said(StrEnum):
    """What feedback holds."""

    RATING = "rating"
    COMMENT = "comment"
    CORRECTION = "correction"
    DEMONSTRATION = "demonstration"


def page(
    session: Session, agent: str, tenant: str, *, said: Said | None, before: Place | None, limit: int
) -> tuple[list[Tree], str | None]:
    """Feedback on replies of `agent`, each with its turn, and the place where the next page begins (None: no more)."""
    at, name = col(FeedbackRow.created_at), col(FeedbackRow.feedback_id)
    reach: list[ColumnElement[bool]] = [col(FeedbackRow.tenant) == tenant]
    if before is not None:
        reach += [at <= before.at, or_(at < before.at, name < before.name)]
    latest = select(name, at, col(FeedbackRow.interaction_id)).where(*reach).order_by(at.desc(), name.desc())
    for n_looks in (min(2 * limit, LOOKS), LOOKS):  # where most of the feedback is wanted, few looks are enough
        looked = [(str(key), float(when), of) for key, when, of in session.connection().execute(latest.limit(n_looks))]
        mine = _of_agent(session, agent, {str(of) for _, _, of in looked if of is not None})
        kept = select(FeedbackRow).where(
            name.in_([key for key, _, of in looked if of in mine]),
            col(FeedbackRow.is_deleted).is_(False),
            *_holds(said),
        )
        rows = session.scalars(kept.order_by(at.desc(), name.desc()).limit(limit)).all()
        if len(rows) == limit or len(looked) < n_looks:
            break
    turns = {line["turn"]: line for line in lines(session, [row.interaction_id for row in rows if row.interaction_id])}
    found = [{**{key: getattr(row, key) for key in _SHOWN}, "turn": turns.get(str(row.interaction_id))} for row in rows]
    if len(rows) == limit:
        return found, str(Place(rows[-1].created_at, rows[-1].feedback_id))
    return found, str(Place(looked[-1][1], looked[-1][0])) if len(looked) == LOOKS else None


def found(session: Session, agent: str, tenant: str, said: Said | None, n: int) -> list[Tree]:
    """The `n` newest pieces of feedback on replies of `agent`, however far back they are."""
    made: list[Tree] = []
    before: Place | None = None
    while True:
        some, following = page(session, agent, tenant, said=said, before=before, limit=min(n - len(made), LOOKS))
        made += some
        if following is None or len(made) >= n:
            return made
        before = Place.read(following)


def _of_agent(session: Session, agent: str, names: set[str]) -> set[str]:
    """The turns among `names` that are the agent's. The database is asked by name alone: with the agent as a condition,
    SQLite walks over all of its turns.
    """
    columns = (col(InteractionRow.interaction_id), col(InteractionRow.agent))
    rows = session.connection().execute(select(*columns).where(columns[0].in_(names)))
    return {str(name) for name, of in rows if of == agent}


def _holds(said: Said | None) -> list[ColumnElement[bool]]:
    match said:
        case None:
            return []
        case Said.RATING:
            return [or_(*(column.is_not(None) for column in map(col, _VALUES)))]
        case _:
            return [col(getattr(FeedbackRow, said.value)) != ""]


_VALUES = (FeedbackRow.rating, FeedbackRow.score, FeedbackRow.outcome)
