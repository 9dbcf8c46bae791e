"""Agents over HTTP: the verbs of `burnish agents`."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field

from burnish.adapters.registry import agents
from burnish.adapters.registry.learning_state import learning_state
from burnish.adapters.registry.lineage import aliases_of
from burnish.adapters.serving.prepare import refresh
from burnish.adapters.verbs.answers import described, hold_ended
from burnish.config import BASE_NAME, Settings, overrides
from burnish.errors import NotAllowed, RequestError
from burnish.journal import Journal
from burnish.journal.summary import summary
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access, find, visible
from burnish.server.gateway.admin.field_types import AgentPath, Body, Reasoned, Text

Value = bool | int | float | str | list[float] | None
Own = Annotated[
    dict[str, Value],
    Field(
        max_length=100,
        description="Dotted settings of this agent alone, e.g. `learner.min_rows`; see docs/reference/settings.md.",
    ),
]


class NewAgent(Body):
    """A new agent. Repeating the same request changes nothing."""

    name: str = Field(
        max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.~-]*$", description="Model name that clients will ask for."
    )
    settings: Own = Field(default_factory=dict)
    reason: Text | None = Field(None, description="Kept in the audit log.")


class OwnSettings(Body):
    """Replaces all of the agent's own settings."""

    settings: Own
    reason: Text | None = Field(None, description="Kept in the audit log.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET` and `POST /agents`, `GET /agents/{agent}`, `POST /agents/{agent}/set` and `…/end-hold`."""
    may_make = Depends(access.anywhere(Scope.OPERATOR, Reach.NEW_AGENT))
    made = APIRouter()

    @made.get("/agents")
    def list_agents(caller: Caller = Depends(access.anywhere(Scope.VIEWER))) -> dict[str, Any]:  # noqa: B008
        """The tenant's agents with the targets of their aliases, and what the key of this request may do."""
        key = {"key_id": caller.key_id, "scopes": sorted(caller.scopes), "agents": sorted(caller.agents)}
        with journal.read() as session:
            found = [described(row, aliases_of(session, row.name)) for row in visible(session, caller)]
        return {"agents": found, "key": key}

    @made.post("/agents")
    def create_agent(body: NewAgent, caller: Caller = may_make) -> dict[str, Any]:
        """Make an agent of the key's tenant. It is served at the base at once."""
        if caller.agents and body.name not in caller.agents:
            raise NotAllowed(
                f"key {caller.key_id} is limited to other agents than {body.name!r}", code="model_not_allowed"
            )
        wanted = overrides.checked(settings, body.settings)
        taken = (BASE_NAME,)
        with journal.write() as session:
            options: dict[str, Any] = {
                "settings": wanted,
                "taken": taken,
                "actor": caller.key_id,
                "reason": body.reason,
            }
            row = agents.create(session, body.name, caller.tenant, **options)
            answer = described(row, {0: [agents.LIVE]})
        refresh(settings, journal)
        return answer

    @made.get("/agents/{agent}")
    def show_agent(agent: AgentPath, caller: Caller = Depends(access.on_agent(Scope.VIEWER))) -> dict[str, Any]:  # noqa: B008
        """One agent with what learning is doing, its settings and counts."""
        with journal.read() as session:
            row = find(session, caller, agent)
            try:
                own = overrides.laid_over(settings, row.settings)
            except RequestError:  # stored by an earlier release; the learner says so
                own = settings
            learning = asdict(learning_state(session, own, agent))
            return {**described(row, aliases_of(session, agent)), "learning": learning, **summary(session, agent)}

    @made.post("/agents/{agent}/set")
    def set_agent(
        agent: AgentPath,
        body: OwnSettings,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> dict[str, Any]:
        """Replace the agent's own settings. The learner and the gate use them within seconds."""
        wanted = overrides.checked(settings, body.settings)
        with journal.write() as session:
            row = agents.change_settings(session, agent, wanted, actor=caller.key_id, reason=body.reason)
            return described(row, aliases_of(session, agent))

    @made.post("/agents/{agent}/end-hold")
    def end_hold(
        agent: AgentPath,
        body: Reasoned,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> dict[str, Any]:
        """End the hold on an agent: its versions are promoted automatically again."""
        with journal.write() as session:
            held = agents.end_hold(session, agent, actor=caller.key_id, reason=body.reason)
        return {"status": hold_ended(agent, held), "was_held": held}

    return made
