"""Canaries over HTTP: the verbs of `burnish canary`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from burnish.adapters.verbs import canary
from burnish.config import Settings
from burnish.journal import Journal
from burnish.keys import Scope
from burnish.records import Observation
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath


class Start(BaseModel):
    """An older version to put on canary."""

    model_config = ConfigDict(extra="forbid")
    version: int = Field(ge=1, le=2**31 - 1, description="Version to put on canary.")
    share: float | None = Field(None, gt=0, le=0.5, description="Share of the conversations; default `canary.share`.")


class Stop(BaseModel):
    """`kind` `watch` stops a watch. The live version stays live."""

    model_config = ConfigDict(extra="forbid")
    kind: Observation = Field(
        Observation.CANARY, description="What to end: the canary, or the watch over what is live."
    )
    reason: str | None = Field(None, max_length=500, pattern=r"^[^\x00]*$", description="Kept in the audit log.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET`, `POST …/start` and `POST …/stop` under /agents/{agent}/canary. Other tenants' agents do not exist."""
    may_see, may_change = (Depends(access.on_agent(scope)) for scope in (Scope.VIEWER, Scope.OPERATOR))
    made = APIRouter()

    @made.get("/agents/{agent}/canary", dependencies=[may_see])
    def status(agent: AgentPath, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> dict[str, Any]:
        """Canaries and watches, newest first, with the state of each test, and whether the agent is held."""
        with journal.read() as session:
            return canary.status(session, agent, limit)

    @made.post("/agents/{agent}/canary/start")
    def start(agent: AgentPath, body: Start, caller: Caller = may_change) -> dict[str, str]:
        """Put an older version on canary beside the live one."""
        return {"status": canary.start(settings, journal, agent, body.version, share=body.share, actor=caller.key_id)}

    @made.post("/agents/{agent}/canary/stop")
    def stop(agent: AgentPath, body: Stop, caller: Caller = may_change) -> dict[str, str]:
        """Stop the canary and refuse its version, or stop the watch over the live version."""
        return {
            "status": canary.stop(settings, journal, agent, kind=body.kind, actor=caller.key_id, reason=body.reason)
        }

    return made
