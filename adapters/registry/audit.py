"""The audit log: who changed what is served, when and why. Written in the transaction that makes the change, never
altered."""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import or_, select
from sqlmodel import Session

from burnish.journal.tables import AgentRow, AuditRow


def record(
    session: Session,
    actor: str,
    action: str,
    target: str,
    before: str | None,
    after: str | None,
    reason: str | None,
    *,
    agent: str | None = None,
) -> None:
    """Add one entry. `target` names what was changed, `agent` whose it is (None: nobody's alone)."""
    session.add(
        AuditRow(
            agent=agent,
            at=time.time(),
            actor=actor,
            action=action,
            object=target,
            before=before,
            after=after,
            reason=reason,
        )
    )


def entries(
    session: Session,
    *,
    tenant: str | None = None,
    agents: Sequence[str] | None = None,
    agent: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    since: float | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> Sequence[AuditRow]:
    """Entries, newest first: `tenant` sees its own agents' alone, of these `agents` where they are named.

    `before_id` goes on where a page ended.
    """
    row: Any = AuditRow
    named: Any = AgentRow
    wanted = select(AuditRow).order_by(row.audit_id.desc()).limit(limit)
    if tenant is not None:
        own = select(named.name).where(named.tenant == tenant)
        # entries of earlier schemas have no agent, but were only ever about an agent or one of its versions
        wanted = wanted.where(or_(row.agent.in_(own), row.agent.is_(None) & row.object.in_(own)))
    if agents is not None:
        wanted = wanted.where(row.agent.in_(agents))
    for column, value in ((row.agent, agent), (row.actor, actor), (row.action, action)):
        if value is not None:
            wanted = wanted.where(column == value)
    if since is not None:
        wanted = wanted.where(row.at >= since)
    if before_id is not None:
        wanted = wanted.where(row.audit_id < before_id)
    return session.scalars(wanted).all()
