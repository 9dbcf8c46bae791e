"""The audit log over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from burnish.adapters.registry import audit
from burnish.config import Settings
from burnish.journal import Journal
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access, find, visible
from burnish.server.gateway.admin.field_types import Since

Word = Annotated[str | None, Query(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /audit`."""
    made = APIRouter()

    @made.get("/audit")
    def list_audit(
        agent: Word = None,
        actor: Word = None,
        action: Word = None,
        since: Since = None,
        before: Annotated[
            int | None, Query(ge=1, le=2**31 - 1, description="Go on where a page ended: its `next`.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        caller: Caller = Depends(access.anywhere(Scope.VIEWER)),  # noqa: B008
    ) -> dict[str, Any]:
        """The audit log, newest entry first."""
        with journal.read() as session:
            if agent is not None:
                find(session, caller, agent)
            names = [row.name for row in visible(session, caller)] if caller.agents else None
            options: dict[str, Any] = {
                "agent": agent,
                "actor": actor,
                "action": action,
                "since": since,
                "before_id": before,
                "limit": limit,
            }
            rows = audit.entries(session, tenant=caller.tenant, agents=names, **options)
        entries = [row.model_dump() for row in rows]
        return {"entries": entries, "next": entries[-1]["audit_id"] if len(entries) == limit else None}

    return made
