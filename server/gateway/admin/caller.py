"""The caller of an admin request, and which agents exist for it."""

from sqlmodel import Session
from starlette.requests import Request

from burnish.adapters.registry import agents
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import AgentRow
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller, Holder
from burnish.server.gateway.access.need import Reach, need
from burnish.server.gateway.admin.field_types import AgentPath


class Access:
    """Makes the routes' dependencies."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal

    def anywhere(self, scope: Scope, reach: Reach = Reach.LIST) -> Holder:
        """The caller, if it holds `scope`. The route itself limits what it shows or touches to `reach`."""
        return Holder(self._settings, need(reach, scope))

    def on_agent(self, scope: Scope) -> "OnAgent":
        """The caller, if it holds `scope` and the path's agent exists for it. Raises NotFound otherwise."""
        return OnAgent(self._settings, self._journal, scope)


class OnAgent(Holder):
    """A dependency of routes with an agent in their path."""

    def __init__(self, settings: Settings, journal: Journal, scope: Scope) -> None:
        super().__init__(settings, need(Reach.AGENT, scope))
        self._journal = journal

    def __call__(self, request: Request, agent: AgentPath) -> Caller:  # type: ignore[override]
        caller = super().__call__(request)
        with self._journal.read() as session:
            find(session, caller, agent)
        return caller


def find(session: Session, caller: Caller, name: str) -> AgentRow:
    """The agent. Raises NotFound if it belongs to another tenant or the key is not allowed to use it."""
    row = agents.find(session, name, caller.tenant)
    if caller.agents and not {row.name, row.parent} & caller.agents:
        return agents.find(session, name, "")  # raises, because the agent does not exist for this key
    return row


def visible(session: Session, caller: Caller) -> list[AgentRow]:
    """The agents that exist for the caller, by name."""
    rows = agents.listed(session, caller.tenant)
    return [row for row in rows if not caller.agents or {row.name, row.parent} & caller.agents]
