"""Sessions as the turns of one transaction open them or go on with them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlmodel import Session

from burnish.journal.bulk import SKIP, insert_many, update_many
from burnish.journal.tables import SessionRow


@dataclass(slots=True)
class Opened:
    """A session as its first turn here opens it, and what the turns change if it was there before."""

    session_id: str
    tenant: str
    key_id: str
    agent: str
    quoted_id: str | None
    started_at: float
    last_at: float
    closed_at: float | None
    has_tools: bool
    head: str | None
    opening: str
    gets_tools: bool = False
    new_head: str | None = None
    gets_head: bool = False


def store(session: Session, sessions: Sequence[Opened], there: Collection[str]) -> None:
    """Store them. `there` are the ids of those that the journal had before."""
    new = [each for each in sessions if each.session_id not in there]
    insert_many(session, SessionRow, [{name: getattr(each, name) for name in _SESSION} for each in new], SKIP)
    changes = [{name: getattr(each, name) for name in _CHANGE} for each in sessions]
    update_many(session, _GO_ON, _CHANGE, changes)


_CHANGE = {
    "session_id": "text",
    "last_at": "float8",
    "closed_at": "float8",
    "gets_tools": "boolean",
    "gets_head": "boolean",
    "new_head": "text",
}
_SESSION = tuple(name for name in Opened.__dataclass_fields__ if name not in ("gets_tools", "gets_head", "new_head"))
_GO_ON = (
    "UPDATE session SET last_at = :last_at, closed_at = COALESCE(:closed_at, session.closed_at), "
    "has_tools = (session.has_tools OR :gets_tools), "
    "head = CASE WHEN :gets_head THEN :new_head ELSE session.head END WHERE session.session_id = :session_id"
)
