"""Observations as rows: versions that are watched beside another while they answer. The alias `canary` names the one on trial.

At most one canary and one watch run per agent. Whoever makes a version live ends what ran, in the same transaction: a canary is
compared with what is live, and there is nothing to compare with once that has changed.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlmodel import Session

from adapters import audit
from burnish.errors import Conflict
from burnish.journal.tables import AliasRow, CanaryRow, LoadJob, VersionRow
from burnish.records import CanaryState, Observation, VersionName, VersionState

CANARY = "canary"


def running(session: Session, agent: str | None = None) -> Sequence[CanaryRow]:
    """What is being watched now (of one agent), oldest first."""
    columns: Any = CanaryRow
    wanted = select(CanaryRow).where(columns.state == CanaryState.RUNNING).order_by(columns.canary_id)
    return session.scalars(wanted if agent is None else wanted.where(columns.agent == agent)).all()


def history(session: Session, agent: str, limit: int) -> Sequence[CanaryRow]:
    """An agent's observations, newest first."""
    columns: Any = CanaryRow
    wanted = select(CanaryRow).where(columns.agent == agent).order_by(columns.canary_id.desc()).limit(limit)
    return session.scalars(wanted).all()


def begin(
    session: Session,
    agent: str,
    number: int,
    baseline: int,
    kind: Observation,
    *,
    share: float,
    actor: str,
    evidence: Mapping[str, object] | None = None,
) -> CanaryRow:
    """Watch `number` beside `baseline` from now on; as a canary it answers `share` of the conversations.

    Raises Conflict where another one of the kind runs, and where what it presumes to be live is not.
    """
    live = session.get(AliasRow, (agent, "live"), populate_existing=True)
    presumed = baseline if kind is Observation.CANARY else number
    if (live.version if live else 0) != presumed:
        raise Conflict(f"expected v{presumed} of {agent!r} to be live; look again and repeat")
    for other in running(session, agent):
        if other.kind == kind:
            raise Conflict(
                f"{VersionName(agent, other.version)} is on {kind} already; `burnish canary stop` ends it", code="canary_runs"
            )
    now = time.time()
    row = CanaryRow(
        agent=agent,
        version=number,
        baseline=baseline,
        kind=kind,
        share=share,
        state=CanaryState.RUNNING,
        evidence=dict(evidence or {}),
        started_at=now,
    )
    session.add(row)
    if kind is Observation.CANARY:
        session.merge(AliasRow(agent=agent, alias=CANARY, version=number, updated_at=now))
        session.get_one(VersionRow, (agent, number)).state = VersionState.CANARY
    against = f"{share:.0%} of the conversations, beside v{baseline}" if share else f"beside v{baseline}"
    audit.record(session, actor, f"{kind} begins", str(VersionName(agent, number)), None, None, against, agent=agent)
    session.flush()
    return row


def end(session: Session, row: CanaryRow, state: CanaryState, reason: str, *, actor: str) -> bool:
    """Close a running observation; False where it was closed already. What becomes of the version is the caller's."""
    columns: Any = CanaryRow
    still = (columns.canary_id == row.canary_id, columns.state == CanaryState.RUNNING)
    values = {"state": state, "reason": reason, "ended_at": time.time()}
    if not session.connection().execute(update(columns).where(*still).values(**values)).rowcount:
        return False
    if row.kind == Observation.CANARY:
        alias: Any = AliasRow
        session.connection().execute(delete(alias).where(alias.agent == row.agent, alias.alias == CANARY))
    name = str(VersionName(row.agent, row.version))
    audit.record(session, actor, f"{row.kind} {state}", name, None, None, reason, agent=row.agent)
    return True


def cancel(session: Session, agent: str, reason: str, *, promoted: int) -> None:
    """End whatever runs, since another version is live now. One that was on canary is tried again beside the new one."""
    for row in running(session, agent):
        if not end(session, row, CanaryState.CANCELLED, reason, actor="registry") or row.kind != Observation.CANARY:
            continue
        version = session.get_one(VersionRow, (agent, row.version))
        if row.version == promoted or version.state != VersionState.CANARY:
            continue
        if version.decided_at is not None:  # put on canary by hand after it had been decided
            version.state = VersionState.RETIRED
            continue
        version.state = VersionState.CANDIDATE
        job = session.get(LoadJob, str(VersionName(agent, row.version)))
        if job is not None:
            job.state, job.run_after, job.attempts, job.ended_at = "queued", 0.0, 0, None


def split_of(session: Session, agent: str) -> tuple[int, float] | None:
    """The version that answers a share of the conversations beside the live one, and that share; None where none does."""
    for row in sorted(running(session, agent), key=lambda row: row.kind != Observation.CANARY):
        if row.share > 0:
            return (row.version if row.kind == Observation.CANARY else row.baseline), row.share
    return None


def stops_since(session: Session, agent: str, kind: Observation, since: float) -> int:
    """How many observations of `kind` have been stopped since then."""
    columns: Any = CanaryRow
    wanted = select(columns.canary_id).where(
        columns.agent == agent, columns.state == CanaryState.STOPPED, columns.kind == kind, columns.ended_at > since
    )
    return len(session.scalars(wanted).all())


def wake(session: Session, agent: str) -> None:
    """Let candidates that waited for the end of a hold be tried at once."""
    jobs: Any = LoadJob
    for job in session.scalars(select(LoadJob).where(jobs.state == "queued")):
        if job.payload.get("agent") == agent:
            job.run_after = 0.0
