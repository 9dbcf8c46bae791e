"""One turn over HTTP: `burnish turns show`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from sqlmodel import Session

from burnish.config import Settings
from burnish.errors import NotFound
from burnish.journal import Journal, story
from burnish.journal.tables import InteractionRow
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access, find

TurnPath = Annotated[str, Path(max_length=512, pattern=r"^[^\x00]+$", description="A reply's id, percent-encoded.")]


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /turns/{turn}`."""
    may_see = Depends(access.anywhere(Scope.VIEWER, Reach.TURN))
    made = APIRouter()

    @made.get("/turns/{turn}")
    def show_turn(turn: TurnPath, caller: Caller = may_see) -> dict[str, Any]:
        """One turn: messages, next state, votes, reward, and whether it was trained, in which version, or why not."""
        with journal.read() as session:
            _check(session, caller, turn)
            return story.tell(session, turn)

    return made


def _check(session: Session, caller: Caller, turn: str) -> None:
    """Raises NotFound if the turn belongs to another tenant or to an agent that does not exist for the caller."""
    row = session.get(InteractionRow, turn)
    missing = NotFound(f"there is no turn {turn[:200]!r} of this key's agents", code="turn_not_found")
    if row is None or row.tenant != caller.tenant:
        raise missing
    if caller.agents:
        try:
            find(session, caller, row.agent)
        except NotFound as error:
            raise missing from error
