"""Agents: named policy lines. Each belongs to one tenant and may have its own settings.

An agent is made once and keeps its name and its tenant, because versions, turns and keys refer to both.
"""

import re
import time
from collections.abc import Mapping, Sequence

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.adapters.registry import audit, canaries
from burnish.errors import Conflict, NotFound, RequestError
from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import AgentRow, AliasRow, InteractionRow, LeaseRow, VersionRow
from burnish.records import UNDECIDED, VersionName

LIVE = "live"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
MAX_NAME = 128
HOME = "default"
"""The tenant whose agents have names of their own. Those of another tenant begin with its name and `~`."""


def ensure_agent(session: Session, name: str, tenant: str = "default") -> bool:
    """Make the agent and its `live` alias at the base (version 0) if they do not exist. True if it is new."""
    now = time.time()
    values = {"name": name, "tenant": tenant, "created_at": now, "is_paused": False, "settings": {}}
    is_new = insert_or_skip(session, AgentRow, values)
    insert_or_skip(session, AliasRow, {"agent": name, "alias": LIVE, "version": 0, "updated_at": now})
    return is_new


def create(
    session: Session,
    name: str,
    tenant: str,
    *,
    settings: Mapping[str, object] | None = None,
    taken: Sequence[str] = (),
    actor: str,
    reason: str | None = None,
) -> AgentRow:
    """Make an agent of `tenant`. An existing equal one is returned, so the call is safe to repeat.

    `settings` are dotted keys over the configuration, checked by the caller (src/burnish/config/overrides.py). `taken`
    are model names that mean something else. A new agent of another tenant than `default` is named `TENANT~NAME`, so
    no tenant can meet, or learn of, a name of another. Raises Conflict if the name is reserved or has other settings,
    RequestError for an invalid name.
    """
    if name in taken:
        raise _taken(name)
    row = session.get(AgentRow, name)
    if row is None or row.tenant != tenant:
        _check_name(name, tenant)
    if ensure_agent(session, name, tenant):
        session.flush()
        row = session.get_one(AgentRow, name)
        row.settings = dict(settings or {})
        audit.record(session, actor, "create", name, None, tenant, reason, agent=name)
        return row
    row = session.get_one(AgentRow, name)
    if row.tenant != tenant:
        raise _taken(name)
    if settings is not None and dict(settings) != row.settings:
        raise Conflict(f"agent {name!r} exists with other settings; change those with `burnish agents set {name}`")
    return row


def _check_name(name: str, tenant: str) -> None:
    """Raises RequestError if an agent of `tenant` cannot be made under this name. It does not look what exists."""
    parts = [name] if tenant == HOME else [tenant, name.removeprefix(f"{tenant}~")]
    rules = "letters, digits and '_.-', 128 at most, the first a letter or a digit"
    if len(name) > MAX_NAME or not all(map(_NAME.fullmatch, parts)):
        raise _invalid(f"agent {name!r}: expected {rules}")
    if tenant != HOME and parts[1] == name:
        raise _invalid(f"agent {name!r}: names of tenant {tenant!r} begin with {tenant + '~'!r}; try '{tenant}~{name}'")


def _invalid(text: str) -> RequestError:
    return RequestError(text, param="name", code="invalid_value")


def _taken(name: str) -> Conflict:
    """One answer for a name of another tenant and for a reserved one, so that it does not say which."""
    return Conflict(f"the name {name!r} is taken or reserved; choose another", code="name_taken")


def find(session: Session, name: str, tenant: str | None = None) -> AgentRow:
    """The agent. Raises NotFound if there is none, or if it is not `tenant`'s (None: any tenant's)."""
    row = session.get(AgentRow, name)
    if row is None or (tenant is not None and row.tenant != tenant):
        raise NotFound(f"no agent {name!r}; `burnish agents list` shows what exists", code="agent_not_found")
    return row


def tenant_of(session: Session, name: str) -> str:
    """The tenant of an agent. One that has no row yet will be the default tenant's."""
    row = session.get(AgentRow, name)
    return row.tenant if row is not None else "default"


def listed(session: Session, tenant: str | None = None) -> Sequence[AgentRow]:
    """All agents (of one tenant), by name."""
    wanted = select(AgentRow).order_by(col(AgentRow.name))
    return session.scalars(wanted if tenant is None else wanted.where(col(AgentRow.tenant) == tenant)).all()


def change_settings(
    session: Session, name: str, settings: Mapping[str, object], *, actor: str, reason: str | None = None
) -> AgentRow:
    """Replace the agent's own settings (already checked)."""
    row = find(session, name)
    if row.settings != dict(settings):
        audit.record(session, actor, "settings", name, str(row.settings), str(dict(settings)), reason, agent=name)
        row.settings = dict(settings)
    return row


def set_paused(session: Session, name: str, is_paused: bool, *, actor: str, reason: str | None = None) -> bool:
    """Pause or resume this agent's learning. False if nothing changed."""
    row = find(session, name)
    if row.is_paused == is_paused:
        return False
    row.is_paused = is_paused
    audit.record(session, actor, "pause" if is_paused else "resume", name, None, None, reason, agent=name)
    return True


def hold(session: Session, name: str, why: str, *, actor: str) -> None:
    """Promote nothing automatically for this agent until `end_hold`. An existing hold stays as it is."""
    row = find(session, name)
    if row.held is None:
        row.held = why
        audit.record(session, actor, "hold", name, None, why, why, agent=name)


def end_hold(session: Session, name: str, *, actor: str, reason: str | None = None) -> str | None:
    """End a hold: versions are promoted automatically again. Returns why it was held, None if it was not held."""
    row = find(session, name)
    held = row.held
    if held is not None:
        row.held = None
        audit.record(session, actor, "end-hold", name, held, None, reason, agent=name)
        canaries.wake(session, name)
    return held


def ask_step(session: Session, name: str, *, actor: str, reason: str | None = None) -> int:
    """Let the learner take one step as soon as it can, with any number of rows, paused or not. Returns the number of
    rows.

    Raises Conflict if no row is ready or a version is still undecided. The request stands for an hour.
    """
    find(session, name)
    waits = select(col(VersionRow.version)).where(col(VersionRow.agent) == name, col(VersionRow.state).in_(UNDECIDED))
    if (other := session.scalars(waits).first()) is not None:
        raise Conflict(
            f"{VersionName(name, other)} is still on trial; the next step begins when that is decided", code="on_trial"
        )
    ready = (
        col(InteractionRow.agent) == name,
        col(InteractionRow.is_ready).is_(True),
        col(InteractionRow.spent_step).is_(None),
        col(InteractionRow.skip_reason).is_(None),
    )
    n_ready = int(session.connection().execute(select(func.count()).where(*ready)).scalar_one())
    if not n_ready:
        raise Conflict(
            f"no turn of {name!r} is ready to be learned from; `burnish learner status` says what it waits for"
        )
    session.merge(LeaseRow(name=_asked(name), holder=actor, until=time.time() + 3600.0))
    audit.record(session, actor, "step", name, None, None, reason, agent=name)
    return n_ready


def is_step_asked(session: Session, name: str) -> bool:
    """True if an operator wants a step now."""
    row = session.get(LeaseRow, _asked(name))
    return row is not None and row.until > time.time()


def answer_step(session: Session, name: str) -> None:
    """The requested step has begun, or cannot begin."""
    row = session.get(LeaseRow, _asked(name))
    if row is not None:
        session.delete(row)


def _asked(name: str) -> str:
    """The lease row that stores the request."""
    return f"step:{name}"
