"""`GET` and `DELETE` below `/v1/feedback`. Both need SQL, so they stand behind the hot path.

A key with the feedback scope sees and deletes its own feedback. A viewer sees all of the tenant's, and an operator
deletes it, if they are not limited to some agents. A limited key sees what is about their replies. Other feedback does
not exist for a caller.
"""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from sqlalchemy import ColumnElement, or_, select
from sqlmodel import col
from starlette.concurrency import run_in_threadpool

from burnish.config import Settings
from burnish.errors import JournalError, NotFound
from burnish.journal import Journal
from burnish.journal.blobs import storable
from burnish.journal.tables import AgentRow, FeedbackRow, InteractionRow
from burnish.keys import Scope
from burnish.records import Feedback, FeedbackSource, TargetKind, id_without_words
from burnish.server.gateway.access.keyring import Caller, Holder
from burnish.server.gateway.access.need import Reach, need
from burnish.server.gateway.feedback.accept import PATH
from burnish.server.gateway.feedback.parse import MAX_NAME

Status = Literal["pending", "attached", "expired", "deleted"]


class StoredFeedback(BaseModel):
    """One piece of feedback as the journal holds it. `turn` is the reply that it is attached to."""

    id: str
    target: str
    about: TargetKind
    status: Status
    source: FeedbackSource
    turn: str | None
    rating: float | None
    score: float | None
    outcome: float | None
    label: str | None
    comment: str | None
    correction: str | None
    demonstration: str | None
    created_at: float
    expired_at: float | None


class FeedbackList(BaseModel):
    """Feedback, newest first."""

    feedback: list[StoredFeedback]


class DeletedFeedback(BaseModel):
    """Deleted feedback. Its rows stay and no longer count."""

    id: str
    target: str
    about: TargetKind
    status: Literal["deleted"]


def router(settings: Settings, journal: Journal) -> APIRouter:
    """The three routes."""
    may_list, may_see = (
        Depends(Holder(settings, need(reach, Scope.FEEDBACK, Scope.VIEWER))) for reach in (Reach.LIST, Reach.FEEDBACK)
    )
    may_delete = Depends(Holder(settings, need(Reach.FEEDBACK, Scope.FEEDBACK, Scope.OPERATOR)))
    routes = APIRouter(tags=["v1"])

    @routes.get(PATH)
    def list_feedback(
        target: Annotated[
            str, Query(min_length=1, max_length=MAX_NAME, description="What it is about, as it was sent.")
        ],
        about: Annotated[TargetKind | None, Query(description="Only what is about this kind of target.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="The newest so many.")] = 100,
        caller: Caller = may_list,
    ) -> FeedbackList:
        """The feedback about one target, newest first."""
        wanted = select(FeedbackRow).where(col(FeedbackRow.target) == storable(target), *_visible(caller, Scope.VIEWER))
        if about is not None:
            wanted = wanted.where(col(FeedbackRow.about) == about.value)
        with journal.read() as session:
            rows = session.scalars(
                wanted.order_by(col(FeedbackRow.created_at).desc(), col(FeedbackRow.feedback_id)).limit(limit)
            ).all()
        return FeedbackList(feedback=[_shown(each) for each in rows])

    @routes.get(PATH + "/{feedback_id:path}")
    def show_feedback(feedback_id: str, caller: Caller = may_see) -> StoredFeedback:
        """One piece of feedback and its status."""
        found = _find(journal, feedback_id, caller, Scope.VIEWER)
        if found is None:
            raise _unknown(feedback_id)
        return _shown(found)

    @routes.delete(PATH + "/{feedback_id:path}", status_code=202)
    async def delete_feedback(feedback_id: str, request: Request, caller: Caller = may_delete) -> DeletedFeedback:
        """Delete one piece of feedback. It no longer counts. A second call changes nothing."""
        found = await run_in_threadpool(_find, journal, feedback_id, caller, Scope.OPERATOR)
        if found is None and not feedback_id.startswith(caller.feedback_prefix):
            raise _unknown(feedback_id)
        deletion = _deletion(feedback_id, found, caller)
        # Runs in the event loop's thread, which owns the segments.
        if (found is None or not found.is_deleted) and not request.state.recorder.append(deletion):
            raise JournalError("the deletion cannot be stored: the disk is full; please try again later")
        await request.state.recorder.durable()
        return DeletedFeedback(id=deletion.feedback_id, target=deletion.target, about=deletion.about, status="deleted")

    return routes


def _find(journal: Journal, feedback_id: str, caller: Caller, tenant_wide: Scope) -> FeedbackRow | None:
    # earlier versions stored an id as it was sent
    names = {storable(feedback_id), storable(id_without_words(feedback_id))}
    with journal.read() as session:
        mine = (col(FeedbackRow.feedback_id).in_(names), *_visible(caller, tenant_wide))
        return session.scalars(select(FeedbackRow).where(*mine)).first()


def _visible(caller: Caller, tenant_wide: Scope) -> list[ColumnElement[bool]]:
    """The feedback that a caller may see: the tenant's (about the key's agents) with the scope `tenant_wide`, else the
    user's own, or the key's if it has no user.
    """
    of_tenant = col(FeedbackRow.tenant) == caller.tenant
    own = col(FeedbackRow.key_id) == caller.key_id if caller.user is None else col(FeedbackRow.user) == caller.user
    has_all = caller.covers(tenant_wide)
    if not caller.agents or not (has_all or caller.user):
        return [of_tenant] if has_all else [of_tenant, own]
    personal = select(col(AgentRow.name)).where(col(AgentRow.parent).in_(caller.agents))
    turns = select(col(InteractionRow.interaction_id)).where(
        or_(col(InteractionRow.agent).in_(caller.agents), col(InteractionRow.agent).in_(personal))
    )
    is_about_them = col(FeedbackRow.interaction_id).in_(turns)
    return [of_tenant, or_(own, is_about_them)] if has_all else [of_tenant, own, is_about_them]


def _deletion(feedback_id: str, found: FeedbackRow | None, caller: Caller) -> Feedback:
    """The record that deletes feedback. The caller's own feedback may still be on its way to the journal."""
    return Feedback(
        feedback_id=found.feedback_id if found else id_without_words(feedback_id),
        target=found.target if found else "",
        tenant=caller.tenant,
        key_id=found.key_id if found else caller.key_id,
        source=FeedbackSource(found.source) if found else FeedbackSource.USER,
        created_at=time.time(),
        about=TargetKind(found.about) if found else TargetKind.RESPONSE,
        user=found.user if found else caller.user,
        is_deleted=True,
        deleted_by=caller.key_id,
    )


def _shown(row: FeedbackRow) -> StoredFeedback:
    same = {name: getattr(row, name) for name in StoredFeedback.model_fields if hasattr(row, name)}
    return StoredFeedback(**same, id=row.feedback_id, turn=row.interaction_id, status=_status(row))


def _status(row: FeedbackRow) -> Status:
    if row.is_deleted:
        return "deleted"
    if row.expired_at is not None:
        return "expired"
    return "pending" if row.interaction_id is None else "attached"


def _unknown(feedback_id: str) -> NotFound:
    return NotFound(
        f"there is no feedback {feedback_id[:300]!r} of this key; what was just sent is known a moment later",
        code="feedback_not_found",
    )
