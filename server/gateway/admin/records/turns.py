"""Turns over HTTP: the verbs of `burnish turns`, and the turns of one session."""

from threading import Lock
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from sqlmodel import Session

from burnish.config import Settings
from burnish.errors import NotFound, RateLimited
from burnish.journal import Journal, story
from burnish.journal.listing import turns
from burnish.journal.tables import InteractionRow
from burnish.keys import MAX_USER, Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access, find
from burnish.server.gateway.admin.field_types import AgentPath, Before, Since, place
from burnish.server.gateway.admin.records.token_texts import tokens_of

TurnPath = Annotated[str, Path(max_length=512, pattern=r"^[^\x00]+$", description="A reply's id, percent-encoded.")]
SessionPath = Annotated[str, Path(max_length=512, pattern=r"^[^\x00]+$", description="A session's id.")]


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /turns/{turn}`, its `/tokens`, `GET /agents/{agent}/turns` and `…/turns/session/{session}`."""
    may_see = Depends(access.anywhere(Scope.VIEWER, Reach.TURN))
    on_agent = Depends(access.on_agent(Scope.VIEWER))
    made, telling = APIRouter(), Lock()

    @made.get("/turns/{turn}")
    def show_turn(turn: TurnPath, caller: Caller = may_see) -> dict[str, Any]:
        """One turn: messages, next state, votes, reward, and whether it was trained, in which version, or why not."""
        with journal.read() as session:
            _check(session, caller, turn)
            return story.tell(session, turn)

    @made.get("/turns/{turn}/tokens")
    def show_tokens(turn: TurnPath, caller: Caller = may_see) -> dict[str, Any]:
        """The reply's first 600 tokens as text, by the engine's tokenizer, each with its log-prob."""
        with journal.read() as session:
            _check(session, caller, turn)
        if not telling.acquire(blocking=False):  # each takes a worker thread, which others need, and asks 600 times
            raise RateLimited("the tokens of another reply are being told; please try again", retry_after=1.0)
        try:
            return {"turn": turn, "tokens": tokens_of(settings, journal, turn)}
        finally:
            telling.release()

    @made.get("/agents/{agent}/turns", dependencies=[on_agent])
    def list_turns(
        agent: AgentPath,
        version: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only replies of this version.")] = None,
        user: Annotated[
            str | None, Query(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="Only this user's.")
        ] = None,
        fate: Annotated[turns.Fate | None, Query(description="Only turns of which this became.")] = None,
        text: Annotated[
            str, Query(max_length=200, description="Must occur in the newest message or the reply, in any case.")
        ] = "",
        since: Since = None,
        before: Before = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> dict[str, Any]:
        """An agent's turns, newest first, each with its reward and its training status.

        One call looks at 2,000 turns at most (500 with `text`). An answer with few turns and a `next` says that the
        search goes on there; `looked_to` is the time that it has reached.
        """
        wanted = turns.Wanted(version=version, user=user, fate=fate, text=text, since=since)
        with journal.read() as session:
            page = turns.page(session, agent, wanted, before=place(before), limit=limit)
        return {"agent": agent, "turns": page.turns, "next": page.next, "looked_to": page.looked_to}

    @made.get("/agents/{agent}/turns/session/{session_id:path}", dependencies=[on_agent])
    def show_session(agent: AgentPath, session_id: SessionPath) -> dict[str, Any]:
        """The turns of one session with this agent in full, oldest first, at most 200. Empty if there is none."""
        with journal.read() as session:
            return {"agent": agent, "session": session_id, "turns": turns.of_session(session, agent, session_id)}

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
