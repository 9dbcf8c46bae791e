"""Observations as rows: versions that are compared with another while they answer. The alias `canary` names the one on
canary.

At most one canary and one watch run per agent. A promotion ends them in its own transaction, because a canary is
compared with the live version, which has then changed.
"""

import time
from collections.abc import Mapping, Sequence

from sqlalchemy import delete, select, update
from sqlmodel import Session, col

from burnish.adapters.registry import audit
from burnish.errors import Conflict
from burnish.journal.tables import AliasRow, CanaryRow, LoadJob, VersionRow
from burnish.records import TRIALS, CanaryState, Observation, VersionName, VersionState

CANARY = "canary"


def running(session: Session, agent: str | None = None) -> Sequence[CanaryRow]:
    """The running observations (of one agent), oldest first."""
    wanted = select(CanaryRow).where(col(CanaryRow.state) == CanaryState.RUNNING).order_by(col(CanaryRow.canary_id))
    return session.scalars(wanted if agent is None else wanted.where(col(CanaryRow.agent) == agent)).all()


def history(session: Session, agent: str, limit: int) -> Sequence[CanaryRow]:
    """An agent's observations, newest first."""
    wanted = (
        select(CanaryRow).where(col(CanaryRow.agent) == agent).order_by(col(CanaryRow.canary_id).desc()).limit(limit)
    )
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
    """Observe `number` beside `baseline` from now on. A canary answers `share` of the conversations, a shadow canary of
    the turns.

    Raises Conflict if another one of the kind runs, or if the assumed live version is not live.
    """
    live = session.get(AliasRow, (agent, "live"), populate_existing=True)
    presumed = number if kind is Observation.WATCH else baseline
    if (live.version if live else 0) != presumed:
        raise Conflict(f"expected v{presumed} of {agent!r} to be live; look again and repeat")
    for other in running(session, agent):
        if other.kind == kind or (other.kind in TRIALS and kind in TRIALS):
            raise Conflict(
                f"{VersionName(agent, other.version)} is on {other.kind} already; `burnish canary stop` ends it",
                code="canary_runs",
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
    if kind in TRIALS:
        session.merge(AliasRow(agent=agent, alias=CANARY, version=number, updated_at=now))
        session.get_one(VersionRow, (agent, number)).state = VersionState.CANARY
    what = "turns, unseen" if kind is Observation.SHADOW else "conversations"
    against = f"{share:.0%} of the {what}, beside v{baseline}" if share else f"beside v{baseline}"
    audit.record(session, actor, f"{kind} begins", str(VersionName(agent, number)), None, None, against, agent=agent)
    session.flush()
    return row


def end(session: Session, row: CanaryRow, state: CanaryState, reason: str, *, actor: str) -> bool:
    """Close a running observation. False if it was closed already. The caller decides about the version."""
    still = (col(CanaryRow.canary_id) == row.canary_id, col(CanaryRow.state) == CanaryState.RUNNING)
    values = {"state": state, "reason": reason, "ended_at": time.time()}
    if not session.connection().execute(update(CanaryRow).where(*still).values(**values)).rowcount:
        return False
    if row.kind in TRIALS:
        session.connection().execute(
            delete(AliasRow).where(col(AliasRow.agent) == row.agent, col(AliasRow.alias) == CANARY)
        )
    name = str(VersionName(row.agent, row.version))
    audit.record(session, actor, f"{row.kind} {state}", name, None, None, reason, agent=row.agent)
    return True


def cancel(session: Session, agent: str, reason: str, *, promoted: int) -> None:
    """End what runs, because another version is live now. A version on canary is tried again beside the new one."""
    for row in running(session, agent):
        if not end(session, row, CanaryState.CANCELLED, reason, actor="registry") or row.kind not in TRIALS:
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
    """The version that answers a share of the conversations beside the live one, and that share. None if there is none.

    A canary comes before the version that a watch holds back. A shadow canary is loaded too, with a share of 0.
    """
    shares = {row.kind: row for row in running(session, agent) if row.share > 0}
    if (shadow := shares.get(Observation.SHADOW)) is not None:
        return shadow.version, 0.0
    if (canary := shares.get(Observation.CANARY)) is not None:
        return canary.version, canary.share
    watch = shares.get(Observation.WATCH)
    return (watch.baseline, watch.share) if watch is not None else None


def stopped(session: Session, since: float, agent: str | None = None) -> Sequence[CanaryRow]:
    """Observations that were stopped since then (of one agent)."""
    wanted = select(CanaryRow).where(col(CanaryRow.state) == CanaryState.STOPPED, col(CanaryRow.ended_at) > since)
    return session.scalars(wanted if agent is None else wanted.where(col(CanaryRow.agent) == agent)).all()


def wake(session: Session, agent: str) -> None:
    """Let candidates that waited for the end of a hold be tried at once."""
    for job in session.scalars(select(LoadJob).where(col(LoadJob.state) == "queued")):
        if job.payload.get("agent") == agent:
            job.run_after = 0.0
