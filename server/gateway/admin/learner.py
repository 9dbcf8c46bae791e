"""The learner over HTTP: the verbs of `burnish learner`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from burnish.adapters.registry import agents
from burnish.adapters.verbs.answers import asked, paused
from burnish.config import Settings
from burnish.errors import NotFound
from burnish.journal import Journal, steps
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath, Number, Reasoned


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /agents/{agent}/learner` and `…/runs[/{version}]` below it, `POST …/pause`, `…/resume` and `…/step`."""
    may_see = Depends(access.on_agent(Scope.VIEWER))
    may_change = Depends(access.on_agent(Scope.OPERATOR))
    made = APIRouter()

    @made.get("/agents/{agent}/learner", dependencies=[may_see])
    def learner_status(agent: AgentPath) -> dict[str, Any]:
        """The waiting rows, the candidate on trial, the dropped rows with reasons, and the last step."""
        with journal.read() as session:
            progress = steps.standing(session, agent)
        return progress | {"min_rows": settings.recipe.min_rows, "is_enabled": settings.learner.enabled}

    @made.get("/agents/{agent}/learner/runs", dependencies=[may_see])
    def list_runs(agent: AgentPath, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> dict[str, Any]:
        """The agent's last steps, newest first: outcome, metrics, monitors, and rows used and without effect."""
        with journal.read() as session:
            return {"agent": agent, "steps": steps.runs(session, agent, limit)}

    @made.get("/agents/{agent}/learner/runs/{version}", dependencies=[may_see])
    def show_step(agent: AgentPath, version: Number) -> dict[str, Any]:
        """The step that made, or tried to make, a version, with each of its rows."""
        with journal.read() as session:
            try:
                return steps.story(session, agent, version)
            except steps.UnknownStep as error:
                raise NotFound(str(error), code="step_not_found") from error

    @made.post("/agents/{agent}/learner/pause")
    def pause_learner(agent: AgentPath, body: Reasoned, caller: Caller = may_change) -> dict[str, Any]:
        """Pause learning. Serving, recording and judging go on."""
        return _set(agent, True, body, caller)

    @made.post("/agents/{agent}/learner/resume")
    def resume_learner(agent: AgentPath, body: Reasoned, caller: Caller = may_change) -> dict[str, Any]:
        """Resume learning."""
        return _set(agent, False, body, caller)

    @made.post("/agents/{agent}/learner/step")
    def step_learner(agent: AgentPath, body: Reasoned, caller: Caller = may_change) -> dict[str, Any]:
        """Take one step as soon as possible, with any number of ready rows, paused or not."""
        with journal.write() as session:
            n_ready = agents.ask_step(session, agent, actor=caller.key_id, reason=body.reason)
        return {"status": asked(agent, n_ready), "n_ready": n_ready}

    def _set(agent: str, is_paused: bool, body: Reasoned, caller: Caller) -> dict[str, Any]:
        with journal.write() as session:
            agents.set_paused(session, agent, is_paused, actor=caller.key_id, reason=body.reason)
        return {"status": paused(agent, is_paused), "is_paused": is_paused}

    return made
