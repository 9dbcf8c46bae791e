"""The audit log: who changed what is served, keys or a user's data, when and why. It is written in the transaction of
the change and never altered.
"""

import time
from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlmodel import Session, col

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
    tenant: str | None = None,
) -> AuditRow:
    """Add one entry. `target` names what was changed, `agent` its agent. Without a single agent, `tenant` says whose it
    is (None: everybody's, which no tenant sees).
    """
    row = AuditRow(
        agent=agent,
        tenant=tenant,
        at=time.time(),
        actor=actor,
        action=action,
        object=target,
        before=before,
        after=after,
        reason=reason,
    )
    session.add(row)
    return row


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
    """Entries, newest first. A `tenant` sees only its own, and those of `agents` alone if given.

    `before_id` continues after a page.
    """
    wanted = select(AuditRow).order_by(col(AuditRow.audit_id).desc()).limit(limit)
    if tenant is not None:
        own = select(col(AgentRow.name)).where(col(AgentRow.tenant) == tenant)
        # the first schemas' entries have neither, but they were always about an agent or one of its versions
        is_old = col(AuditRow.agent).is_(None) & col(AuditRow.tenant).is_(None)
        wanted = wanted.where(
            or_(
                col(AuditRow.agent).in_(own),
                col(AuditRow.agent).is_(None) & (col(AuditRow.tenant) == tenant),
                is_old & col(AuditRow.object).in_(own),
            )
        )
    if agents is not None:
        wanted = wanted.where(col(AuditRow.agent).in_(agents))
    for column, value in ((col(AuditRow.agent), agent), (col(AuditRow.actor), actor), (col(AuditRow.action), action)):
        if value is not None:
            wanted = wanted.where(column == value)
    if since is not None:
        wanted = wanted.where(col(AuditRow.at) >= since)
    if before_id is not None:
        wanted = wanted.where(col(AuditRow.audit_id) < before_id)
    return session.scalars(wanted).all()
