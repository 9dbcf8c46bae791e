"""The admin API: FastAPI behind the raw hot path.

Looking needs a viewer's key, changing an operator's; an admin's opens both. No route is open without one, on loopback either.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path
from pydantic import BaseModel, ConfigDict, Field

from adapters import registry
from adapters.store import AdapterStore
from burnish import __version__
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.summary import summary
from burnish.keys import Scope
from server import openapi, release
from server.auth import require
from server.canary import admin as canary
from server.envelope import install
from server.feedback import stored

AgentPath = Annotated[str, Path(max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Agent name.")]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]  # as far as the databases count
Reason = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]  # PostgreSQL stores no NUL


class Promotion(BaseModel):
    """`expected` makes it a compare-and-set: 409 when another version is live."""

    model_config = ConfigDict(extra="forbid")
    version: Number = Field(description="Version to make live; 0 is the frozen base.")
    expected: Number | None = Field(None, description="Version that the caller believes to be live.")
    reason: Reason | None = Field(None, description="Kept in the audit log.")


class Rollback(BaseModel):
    """`to` defaults to the previous version."""

    model_config = ConfigDict(extra="forbid")
    to: Number | None = Field(None, description="Version to go back to.")
    reason: Reason | None = Field(None, description="Kept in the audit log.")


def admin_app(settings: Settings, journal: Journal) -> FastAPI:
    """The application that answers what the hot path does not."""
    app = FastAPI(title="Burnish", version=__version__, docs_url="/docs", redoc_url=None)
    app.include_router(_router(settings, journal), prefix="/admin")
    app.include_router(canary.router(settings, journal), prefix="/admin")
    app.include_router(stored.router(settings, journal))
    install(app)
    openapi.install(app)
    return app


def _router(settings: Settings, journal: Journal) -> APIRouter:
    may_see, may_change = (Depends(require(settings, scope)) for scope in (Scope.VIEWER, Scope.OPERATOR))
    router = APIRouter(tags=["admin"])
    store = AdapterStore(settings.adapters_dir)

    @router.get("/agents", dependencies=[may_see])
    def agents() -> dict[str, Any]:
        """Agents with their aliases and counts."""
        with journal.read() as session:
            return {"agents": [{"name": settings.agent.name, **summary(session, settings.agent.name)}]}

    @router.get("/agents/{agent}/versions", dependencies=[may_see])
    def versions(agent: AgentPath) -> dict[str, Any]:
        """An agent's versions, oldest first, and its aliases."""
        with journal.read() as session:
            live = registry.alias(session, agent)
            previous = registry.alias(session, agent, registry.PREVIOUS)
            rows = [row.model_dump() for row in registry.versions(session, agent)]
        return {"agent": agent, "live": live, "previous": previous, "versions": rows}

    @router.get("/agents/{agent}/versions/{version}", dependencies=[may_see])
    def version(agent: AgentPath, version: Number) -> dict[str, Any]:
        """One version: its state, the evidence behind it, and its manifest; null, and what is amiss, where files are gone."""
        with journal.read() as session:
            row = registry.version(session, agent, version).model_dump()
        try:
            return {**row, "manifest": store.manifest(agent, version), "fault": None}
        except AdapterError as error:
            return {**row, "manifest": None, "fault": str(error)}

    @router.post("/agents/{agent}/promote", dependencies=[may_change])
    def promote(agent: AgentPath, body: Promotion) -> dict[str, str]:
        """Make a version live."""
        done = release.promote(
            settings, journal, agent, body.version, actor="admin", reason=body.reason, expected=body.expected
        )
        return {"status": done}

    @router.post("/agents/{agent}/rollback", dependencies=[may_change])
    def rollback(agent: AgentPath, body: Rollback) -> dict[str, str]:
        """Go back to the previous version, or to the one named."""
        return {"status": release.rollback(settings, journal, agent, to=body.to, actor="admin", reason=body.reason)}

    return router
