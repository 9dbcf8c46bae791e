"""The life cycle of versions: which exist, which are live, and how that changed. The SQL tables are the truth.

Every change is one transaction. It moves the alias by compare-and-set, sets the version's state, closes its training
step, consumes the step's rows and writes the audit row. Either all of it happens or none.
"""

import time
from collections.abc import Mapping

from sqlalchemy import Select, func, select, update
from sqlmodel import Session, col

from burnish.adapters.registry import agents, canaries
from burnish.adapters.registry.agents import LIVE, ensure_agent
from burnish.adapters.registry.audit import record
from burnish.adapters.registry.versions import check_servable, version, versions
from burnish.errors import Conflict
from burnish.journal import shadows
from burnish.journal.jobs import enqueue
from burnish.journal.tables import AliasRow, InteractionRow, LoadJob, SampleRow, StepRow, VersionRow
from burnish.records import StepOutcome, VersionName, VersionState

__all__ = [
    "LIVE",
    "PREVIOUS",
    "alias",
    "announce",
    "close_step",
    "ensure_agent",
    "give_back",
    "promote",
    "refuse",
    "rollback",
    "version",
    "versions",
    "with_data",
]
PREVIOUS = "previous"
DATA = "data"
"""The part of a version's evidence that says whose data it was made from."""
MAX_ATTEMPTS = 2
"""How many steps a row may be in."""


def alias(session: Session, agent: str, name: str = LIVE) -> int | None:
    """The version behind an alias. None if it is not set. Raises NotFound for an unknown agent."""
    agents.find(session, agent)
    row = session.get(AliasRow, (agent, name))
    return row.version if row else None


def announce(
    session: Session,
    agent: str,
    number: int,
    *,
    parent: int,
    step_id: int | None,
    digest: str,
    data: Mapping[str, object] | None = None,
) -> None:
    """A version was published in the store: it becomes a candidate, and a load job asks for its trial.

    `data` says whose data it was made from. It stays in the evidence.
    """
    now = time.time()
    session.add(
        VersionRow(
            agent=agent,
            version=number,
            parent=parent,
            step_id=step_id,
            digest=digest,
            state=VersionState.CANDIDATE,
            evidence={DATA: dict(data)} if data is not None else {},
            created_at=now,
        )
    )
    name = str(VersionName(agent, number))
    enqueue(session, LoadJob, name, {"agent": agent, "version": number})
    record(session, "learner", "announce", name, None, VersionState.CANDIDATE, None, agent=agent)


def with_data(row: VersionRow, evidence: Mapping[str, object]) -> dict[str, object]:
    """New `evidence` on a version, with what it was made from."""
    kept = {DATA: row.evidence[DATA]} if DATA in row.evidence else {}
    return {**kept, **evidence}


def check_promotion(session: Session, agent: str, number: int, *, expected: int) -> None:
    """Raises Conflict if `promote` would refuse now. Changes nothing."""
    if number:
        check_servable(version(session, agent, number))
    found = alias(session, agent)
    if found != expected:
        raise _moved(agent, LIVE, expected, found)


def promote(
    session: Session,
    agent: str,
    number: int,
    *,
    expected: int,
    actor: str,
    reason: str | None = None,
    evidence: Mapping[str, object] | None = None,
) -> None:
    """Make `number` live if `expected` is live now. The old version becomes `previous`.

    Raises Conflict if the alias has moved, or if the version was refused or removed. Version 0 (the base) can be
    promoted too.
    """
    _set_alias(session, agent, LIVE, number, expected)
    canaries.cancel(session, agent, f"v{number} was made live by {actor}", promoted=number)
    if expected != number:
        session.merge(AliasRow(agent=agent, alias=PREVIOUS, version=expected, updated_at=time.time()))
    if number:
        row = version(session, agent, number)
        row.state, row.reason, row.decided_at = VersionState.LIVE, reason, time.time()
        if evidence is not None:
            row.evidence = with_data(row, evidence)
        if row.step_id is not None:
            close_step(session, row.step_id, StepOutcome.PUBLISHED, reason)
    if expected and expected != number:
        version(session, agent, expected).state = VersionState.RETIRED
    record(session, actor, "promote", agent, str(expected), str(number), reason, agent=agent)


def refuse(
    session: Session,
    agent: str,
    number: int,
    *,
    reason: str,
    evidence: Mapping[str, object],
    actor: str = "gate",
    gives_back: bool = False,
) -> None:
    """Refuse a candidate: its step is closed as refused and its rows are spent, with the reason.

    With `gives_back`, rows on their first try come once more, because nothing was found against what they say.
    """
    row = version(session, agent, number)
    before = row.state
    row.state, row.reason, row.decided_at = VersionState.REFUSED, reason, time.time()
    row.evidence = with_data(row, evidence)
    if row.step_id is not None:
        (give_back if gives_back else close_step)(session, row.step_id, StepOutcome.REFUSED, reason)
    name = str(VersionName(agent, number))
    record(session, actor, "refuse", name, before, VersionState.REFUSED, reason, agent=agent)


def rollback(
    session: Session, agent: str, *, actor: str, to: int | None = None, reason: str | None = None
) -> tuple[int, int]:
    """Make `to` (default: the previous version) live again. Returns (from, to). Raises Conflict if there is none."""
    live = alias(session, agent) or 0
    target = alias(session, agent, PREVIOUS) if to is None else to
    if target is None:
        raise Conflict(f"agent {agent!r} has no previous version to roll back to; name one with --to")
    if target == live:
        raise Conflict(f"{VersionName(agent, live)} is live already")
    promote(session, agent, target, expected=live, actor=actor, reason=reason or "rollback")
    return live, target


def close_step(session: Session, step_id: int, outcome: StepOutcome, reason: str | None) -> None:
    """Record a step's final outcome once. Its rows and groups are spent in the same transaction."""
    if _end(session, step_id, outcome, reason):
        _spend(session, step_id, _rows_of(step_id))


def give_back(session: Session, step_id: int, outcome: StepOutcome, reason: str | None) -> StepOutcome:
    """Record that a step came to nothing. Its rows come again, but those that have had `MAX_ATTEMPTS` steps are spent,
    and its groups with them. If no row comes again, `outcome` is final. Returns the step's outcome.
    """
    step = session.get_one(StepRow, step_id)
    tired = _tired(session, step)
    n_rows = session.connection().execute(select(func.count()).select_from(_rows_of(step_id).subquery())).scalar_one()
    made = outcome if len(tired) == n_rows else StepOutcome.SUPERSEDED
    if _end(session, step_id, made, reason) and (tired or made is outcome):
        _spend(session, step_id, tired)
    return StepOutcome(step.outcome)


def withdraw(session: Session, step_id: int, reason: str) -> StepOutcome:
    """Record that a step was broken off for no fault of its rows, which come again. Returns the step's outcome."""
    _end(session, step_id, StepOutcome.WITHDRAWN, reason)
    return StepOutcome(session.get_one(StepRow, step_id).outcome)


def _tired(session: Session, step: StepRow) -> list[str]:
    """The step's rows for which it is the last try."""
    earlier = select(col(StepRow.step_id)).where(
        col(StepRow.agent) == step.agent, col(StepRow.outcome) == StepOutcome.SUPERSEDED
    )
    tried = (
        select(col(SampleRow.interaction_id))
        .where(col(SampleRow.step_id).in_(earlier), col(SampleRow.interaction_id).in_(_rows_of(step.step_id)))
        .group_by(col(SampleRow.interaction_id))
        .having(func.count() >= MAX_ATTEMPTS - 1)
    )
    return list(session.scalars(tried))


def _rows_of(step_id: int | None) -> "Select[str]":
    return select(col(SampleRow.interaction_id)).where(col(SampleRow.step_id) == step_id)


def _end(session: Session, step_id: int, outcome: StepOutcome, reason: str | None) -> bool:
    """False if the step has ended before."""
    step = session.get(StepRow, step_id)
    if step is None or step.outcome != StepOutcome.OPEN:
        return False
    step.outcome, step.reason, step.ended_at = outcome, reason, time.time()
    session.flush()
    return True


def _spend(session: Session, step_id: int, rows: "Select[str] | list[str]") -> None:
    session.connection().execute(
        update(InteractionRow)
        .where(col(InteractionRow.interaction_id).in_(rows), col(InteractionRow.spent_step).is_(None))
        .values(spent_step=step_id)
    )
    shadows.spend(session, step_id)


def _set_alias(session: Session, agent: str, name: str, number: int, expected: int) -> None:
    # locked until the end of the transaction: retention (adapters/files/retention.py) waits, and then sees the alias
    if number:
        check_servable(version(session, agent, number, is_locked=True))
    moved = session.connection().execute(
        update(AliasRow)
        .where(col(AliasRow.agent) == agent, col(AliasRow.alias) == name, col(AliasRow.version) == expected)
        .values(version=number, updated_at=time.time())
    )
    if not moved.rowcount:
        raise _moved(agent, name, expected, alias(session, agent, name))


def _moved(agent: str, name: str, expected: int, found: int | None) -> Conflict:
    return Conflict(f"alias {name!r} of {agent!r}: expected v{expected}, found v{found}; look again and repeat")
