"""A user's data over HTTP: the verbs of `burnish privacy`."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from sqlmodel import Session
from starlette.responses import StreamingResponse

from burnish.adapters.serving.prepare import refresh
from burnish.adapters.verbs import privacy
from burnish.config import Settings
from burnish.errors import NotAllowed
from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.keys import MAX_USER, Scope
from burnish.records import Who
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.exports import JSONL
from burnish.server.gateway.admin.field_types import Body, Text

Name = Annotated[str, Query(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="The proved user.")]
By = Literal["user", "key"]
AskedBy = Annotated[By, Query(description="`key`: `user` is a key's id, for what it said without a proved user.")]


class Forget(Body):
    """Whom to forget."""

    user: str = Field(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="The proved user.")
    by: By = Field("user", description="`key`: `user` is a key's id, for what it said without a proved user.")
    dry_run: bool = Field(False, description="Only say how much would go.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


class OptOut(Body):
    """A user's opt-out. `recording`: turns are not recorded either."""

    user: str = Field(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="The user.")
    recording: bool = Field(False, description="Do not record the user's turns either. Default: only do not train.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


class OptIn(Body):
    """The end of an opt-out."""

    user: str = Field(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="The user.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /privacy/export`, `GET /privacy/status`, `POST /privacy/forget`, `…/opt-out` and `…/opt-in`."""
    may_act = Depends(access.anywhere(Scope.OPERATOR, Reach.PERSON))
    may_forget = Depends(access.anywhere(Scope.ADMIN, Reach.PERSON))
    made = APIRouter()

    @made.get(
        "/privacy/export",
        response_class=StreamingResponse,
        responses={200: {"content": {JSONL: {"schema": {"type": "string"}}}, "description": "One JSON object a line."}},
    )
    def export_user(user: Name, by: AskedBy = "user", caller: Caller = may_act) -> StreamingResponse:
        """Everything that is stored of a user: turns with what was made from them, feedback, sessions, keys, audit."""
        return StreamingResponse(privacy.export(settings, journal, _who(caller, user, by)), media_type=JSONL)

    @made.post("/privacy/forget")
    def forget_user(body: Forget, caller: Caller = may_forget) -> dict[str, Any]:
        """Erase everything that is stored of a user up to now, for good. The ingester does it; `GET /privacy/status`
        says how far it is.
        """
        who = _who(caller, body.user, body.by)
        if body.dry_run:
            with journal.read() as session:
                return _dry(session, who)
        with journal.write() as session:
            return privacy.forget(session, who, actor=caller.key_id, reason=body.reason)

    @made.get("/privacy/status")
    def show_erasure(user: Name, by: AskedBy = "user", caller: Caller = may_act) -> dict[str, Any]:
        """How far the latest erasure of a user is, and the versions that learned from what it erased."""
        with journal.read() as session:
            return privacy.standing(session, _who(caller, user, by))

    @made.post("/privacy/opt-out")
    def opt_out(body: OptOut, caller: Caller = may_act) -> dict[str, Any]:
        """Keep a user's turns out of training from now on, and those that no step has used yet."""
        who, may_record = _who(caller, body.user, "user"), not body.recording
        with journal.write() as session:
            n_turns = privacy.opt_out(session, who, may_record=may_record, actor=caller.key_id, reason=body.reason)
        refresh(settings, journal)
        return {"user": body.user, "may_record": may_record, "n_turns": n_turns}

    @made.post("/privacy/opt-in")
    def opt_in(body: OptIn, caller: Caller = may_act) -> dict[str, Any]:
        """End a user's opt-out. Earlier turns stay out of training."""
        with journal.write() as session:
            who = _who(caller, body.user, "user")
            was_out = privacy.opt_in(session, who, actor=caller.key_id, reason=body.reason)
        refresh(settings, journal)
        return {"user": body.user, "had_opted_out": was_out}

    return made


def _dry(session: Session, who: Who) -> dict[str, Any]:
    privacy.check_known(session, who)
    n_turns, n_feedback = erasure.count(session, who)
    counts = {"n_turns": n_turns, "n_feedback": n_feedback}
    return {"erasure": erasure.subject_of(who), **counts, "dry_run": True}


def _who(caller: Caller, user: str, by: By) -> Who:
    """The voice in the caller's tenant. Raises NotAllowed for a key that is limited to some agents."""
    if caller.agents:
        raise NotAllowed(
            f"key {caller.key_id} is limited to {', '.join(sorted(caller.agents))}, and a user's data is that of all "
            "agents; use a key for all of them",
            code="model_not_allowed",
        )
    return (caller.tenant, by, user)
