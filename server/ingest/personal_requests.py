"""Requests for personal agents: the ingester sees whose turns come in. It makes the agents' rows and load requests."""

from collections import OrderedDict

from sqlalchemy import update
from sqlmodel import Session, col

from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.personal import applies, family_of, name_of
from burnish.adapters.verbs.privacy import FORGOTTEN
from burnish.config import Personal
from burnish.journal.jobs import enqueue_again, insert_or_skip
from burnish.journal.tables import AgentRow, LoadJob
from burnish.keys import MAX_USER
from burnish.records import Interaction

NOTED_SECONDS = 5.0
"""Seconds between two notes that an existing agent was used."""
N_REMEMBERED = 50_000


class PersonalRequests:
    """One per ingester."""

    def __init__(self, settings: Personal) -> None:
        self._settings = settings
        self._noted: OrderedDict[str, float] = OrderedDict()

    def note(self, session: Session, turn: Interaction) -> None:
        """A turn was stored: its user's personal agent was used, or is wanted."""
        if not self._settings.enabled or not turn.user or turn.upstream or len(turn.user) > MAX_USER:
            return
        parent = family_of(turn.agent)
        name = name_of(turn.tenant, parent, turn.user)
        is_own = turn.agent == name
        is_noted = is_own and turn.ended_at < self._noted.get(name, 0.0) + NOTED_SECONDS
        if is_noted or not applies(self._settings, parent):
            return
        if not is_own and (
            turn.agent != parent or not turn.may_train or turn.upstream or not self._ensure(session, name, parent, turn)
        ):
            return
        session.connection().execute(
            update(AgentRow).where(col(AgentRow.name) == name).values(last_used_at=turn.ended_at)
        )
        if not is_own:
            enqueue_again(session, LoadJob, f"{name}#wake", {"agent": name, "version": 0, "kind": "wake"})
        self._noted[name] = turn.ended_at
        self._noted.move_to_end(name)
        if len(self._noted) > N_REMEMBERED:
            self._noted.popitem(last=False)

    def forget(self) -> None:
        """Call after a rollback."""
        self._noted.clear()

    def _ensure(self, session: Session, name: str, parent: str, turn: Interaction) -> bool:
        """Make the agent's row if there is none. False if its parent is not one of the tenant's agents, or if another
        user has its name, which is a short digest.
        """
        of = session.get(AgentRow, parent)
        if of is None or of.tenant != turn.tenant or of.parent is not None:
            return False
        values = {
            "name": name,
            "tenant": turn.tenant,
            "created_at": turn.ended_at,
            "is_paused": False,
            "parent": parent,
            "user": turn.user,
            "settings": {},
        }
        insert_or_skip(session, AgentRow, values)
        row = session.get_one(AgentRow, name)
        if row.user == FORGOTTEN:
            row.user = turn.user
        if (row.tenant, row.parent, row.user) != (turn.tenant, parent, turn.user):
            return False
        lifecycle.ensure_agent(session, name, turn.tenant)
        return True
