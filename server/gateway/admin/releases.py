"""Promotion and rollback over HTTP."""

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import Field

from burnish.adapters.registry import lifecycle
from burnish.adapters.verbs import releases
from burnish.config import Settings
from burnish.journal import Journal
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath, Body, Number, Text


class Promotion(Body):
    """`expected` makes it a compare-and-set: 409 if another version is live."""

    version: Number = Field(description="Version to make live; 0 is the frozen base.")
    expected: Number | None = Field(None, description="Version that the caller believes to be live.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


class Rollback(Body):
    """`to` defaults to the previous version. `expected` works as in a promotion."""

    to: Number | None = Field(None, description="Version to go back to.")
    expected: Number | None = Field(None, description="Version that the caller believes to be live.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`POST /agents/{agent}/promote` and `…/rollback`."""
    made = APIRouter()

    @made.post("/agents/{agent}/promote")
    def promote(
        agent: AgentPath,
        body: Promotion,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> dict[str, Any]:
        """Make a version live; the engines load it first if they do not hold it. The live version stays live."""
        options: dict[str, Any] = {"actor": caller.key_id, "reason": body.reason, "expected": body.expected}
        return _answer(journal, agent, releases.promote(settings, journal, agent, body.version, **options))

    @made.post("/agents/{agent}/rollback")
    def rollback(
        agent: AgentPath,
        body: Rollback,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> dict[str, Any]:
        """Go back to the previous version, or to the one named."""
        options: dict[str, Any] = {"actor": caller.key_id, "reason": body.reason, "expected": body.expected}
        return _answer(journal, agent, releases.rollback(settings, journal, agent, to=body.to, **options))

    return made


def _answer(journal: Journal, agent: str, status: str) -> dict[str, Any]:
    with journal.read() as session:
        return {"status": status, "agent": agent, "live": lifecycle.alias(session, agent)}
