"""Feedback on an agent's replies over HTTP, and the turns that a person should label."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.listing import feedback, label_queue
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath, Before, place


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /agents/{agent}/feedback` and `GET /agents/{agent}/judges/label`."""
    may_see = access.on_agent(Scope.VIEWER)
    made = APIRouter()

    @made.get("/agents/{agent}/feedback")
    def list_feedback_of_agent(
        agent: AgentPath,
        said: Annotated[feedback.Said | None, Query(description="Only feedback with this in it.")] = None,
        before: Before = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        caller: Caller = Depends(may_see),  # noqa: B008
    ) -> dict[str, Any]:
        """Feedback on the agent's replies, newest first, each with its turn. One call looks at 2,000 pieces at most; an
        answer with few of them and a `next` says that the list goes on there.
        """
        with journal.read() as session:
            found, following = feedback.page(
                session, agent, caller.tenant, said=said, before=place(before), limit=limit
            )
        return {"agent": agent, "feedback": found, "next": following}

    @made.get("/agents/{agent}/judges/label")
    def list_labels(
        agent: AgentPath,
        why: Annotated[label_queue.Why, Query(description="Why a turn is in the queue.")] = label_queue.Why.ABSTAINED,
        before: Before = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        caller: Caller = Depends(may_see),  # noqa: B008
    ) -> dict[str, Any]:
        """Turns that a person should label, newest first, each with what came back and without the judge's verdict.
        `second` are those that one other key or user has rated, without the rating.

        A label is feedback: `POST /v1/feedback` with a rating. One call looks at 500 turns at most.
        """
        voice = (caller.key_id, caller.user)
        with journal.read() as session:
            found, following = label_queue.queue(session, agent, why, before=place(before), limit=limit, voice=voice)
        return {"agent": agent, "turns": found, "next": following}

    return made
