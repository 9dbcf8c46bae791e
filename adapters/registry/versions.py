"""Version rows: found by number, numbered, pinned, and checked for serving. No files here."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.adapters.registry import audit
from burnish.errors import Conflict, NotFound
from burnish.journal.jobs import enqueue
from burnish.journal.tables import LoadJob, StepRow, VersionRow
from burnish.records import UNDECIDED, VersionName, VersionState

UNFINISHED = "its import has not ended"
_NUMBERED: tuple[type[StepRow | VersionRow], ...] = (StepRow, VersionRow)


def version(session: Session, agent: str, number: int, *, is_locked: bool = False) -> VersionRow:
    """One version. Raises NotFound if there is none. With `is_locked`, nobody else changes its row until the
    transaction ends.
    """
    row = session.get(VersionRow, (agent, number), with_for_update=is_locked)
    if row is None:
        raise NotFound(
            f"no version {VersionName(agent, number)}; `burnish versions list` shows what exists",
            code="version_not_found",
        )
    return row


def versions(session: Session, agent: str) -> Sequence[VersionRow]:
    """All versions of an agent, oldest first, including those without files."""
    return session.scalars(
        select(VersionRow).where(col(VersionRow.agent) == agent).order_by(col(VersionRow.version))
    ).all()


def latest(session: Session, agent: str, limit: int) -> list[dict[str, Any]]:
    """The agent's latest versions, newest first: number, parent, state, reason, and when it was made and decided."""
    names = ("version", "parent", "state", "reason", "created_at", "decided_at")
    wanted = select(*(getattr(VersionRow, name) for name in names)).where(col(VersionRow.agent) == agent)
    rows = session.connection().execute(wanted.order_by(col(VersionRow.version).desc()).limit(limit))
    return [dict(zip(names, row, strict=True)) for row in rows]


def check_servable(row: VersionRow) -> None:
    """Raises Conflict if this version can never be served: it was refused, or its files were removed."""
    name = VersionName(row.agent, row.version)
    if row.removed_at is not None:
        when = time.strftime("%Y-%m-%d", time.gmtime(row.removed_at))
        raise Conflict(
            f"{name} was removed on {when} and only its record is left; choose another, or import it again from an "
            "export",
            code="version_removed",
        )
    if row.state == VersionState.REFUSED:
        raise Conflict(
            f"{name} was refused: {row.reason or 'no reason is recorded'}; choose another", code="version_refused"
        )


def highest(session: Session) -> dict[str, int]:
    """The highest number that each agent's steps and versions were given. Agents without any are left out."""
    found: dict[str, int] = {}
    for table in _NUMBERED:
        for agent, number in session.connection().execute(
            select(col(table.agent), func.max(col(table.version))).group_by(col(table.agent))
        ):
            found[agent] = max(found.get(agent, 0), number)
    return found


def next_number(session: Session, agent: str) -> int:
    """The number of the agent's next version: above every number that a step or a version ever had."""
    highest = [
        session.connection().execute(select(func.max(col(table.version))).where(col(table.agent) == agent)).scalar()
        for table in _NUMBERED
    ]
    return max((number or 0 for number in highest), default=0) + 1


def reserve(session: Session, agent: str, *, parent: int, actor: str, origin: str = "import") -> int:
    """Reserve a number for an import before its files are written. Until `admit` the version counts as refused.

    Raises Conflict while another version is undecided, because each is compared with the version that is live at its
    trial.
    """
    waits = select(col(VersionRow.version)).where(col(VersionRow.agent) == agent, col(VersionRow.state).in_(UNDECIDED))
    if (other := session.scalars(waits).first()) is not None:
        raise Conflict(
            f"{VersionName(agent, other)} is still on trial; try again when the gate has decided", code="on_trial"
        )
    number = next_number(session, agent)
    session.add(
        VersionRow(
            agent=agent,
            version=number,
            parent=parent,
            digest="",
            state=VersionState.REFUSED,
            reason=UNFINISHED,
            evidence={},
            created_at=time.time(),
            decided_at=time.time(),
            origin=origin,
        )
    )
    audit.record(session, actor, origin, str(VersionName(agent, number)), None, None, None, agent=agent)
    return number


def admit(
    session: Session, agent: str, number: int, digest: str, evidence: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """The version's files are in the store: it becomes a candidate with this evidence, and a load job asks for its
    trial.
    """
    row = version(session, agent, number)
    if row.state != VersionState.REFUSED or row.reason != UNFINISHED:
        raise Conflict(f"{VersionName(agent, number)} is no import that waits for its files")
    row.state, row.reason, row.decided_at, row.digest = VersionState.CANDIDATE, None, None, digest
    row.evidence = dict(evidence)
    enqueue(session, LoadJob, str(VersionName(agent, number)), {"agent": agent, "version": number})


def give_up(session: Session, agent: str, number: int, why: str) -> None:
    """The import failed. Its number stays taken, with the reason."""
    row = version(session, agent, number)
    if row.reason == UNFINISHED:
        row.reason = why


def set_pinned(
    session: Session, agent: str, number: int, is_pinned: bool, *, actor: str, reason: str | None = None
) -> bool:
    """Pin or unpin a version's files against retention. False if nothing changed."""
    row = version(session, agent, number)
    if row.removed_at is not None:
        check_servable(row)
    if row.is_pinned == is_pinned:
        return False
    row.is_pinned = is_pinned
    name = str(VersionName(agent, number))
    audit.record(session, actor, "pin" if is_pinned else "unpin", name, None, None, reason, agent=agent)
    return True
