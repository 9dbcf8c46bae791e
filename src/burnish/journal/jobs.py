"""Work queues as tables with leases. A job is done once by one worker, and a dead worker's job comes back by itself.

`lease` hands out jobs that are due and not leased. `finish`, `fail` and `hold` count only while the caller holds the
lease. After `max_attempts` failures a job is dead and keeps its last error. A held job waits with its reason until
`release`.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import TextClause, case, func, literal_column, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert
from sqlmodel import Session, SQLModel, col

from burnish.journal.tables import JobRow, LeaseRow

J = TypeVar("J", bound=JobRow)
STATES = ("queued", "leased", "held", "done", "dead")
COUNTED = 100_000
"""Jobs of one state that are counted. Those that are done stay, so their number grows with the journal."""


@dataclass(frozen=True, slots=True)
class Leased:
    """One leased job. `attempt` counts from 1."""

    subject: str
    payload: Mapping[str, Any]
    attempt: int
    worker: str


def enqueue(
    session: Session, table: type[JobRow], subject: str, payload: Mapping[str, Any], *, now: float | None = None
) -> None:
    """Add a job. An existing job with the subject stays as it is."""
    insert_or_skip(
        session,
        table,
        {
            "subject": subject,
            "payload": dict(payload),
            "state": "queued",
            "attempts": 0,
            "run_after": 0.0,
            "created_at": now or time.time(),
        },
    )


def enqueue_again(session: Session, table: type[JobRow], subject: str, payload: Mapping[str, Any]) -> None:
    """Add a job, or queue it again if the same one has ended. A waiting, held or leased job stays as it is."""
    row = session.get(table, subject)
    if row is not None and row.state in ("done", "dead"):
        session.delete(row)
        session.flush()
    enqueue(session, table, subject, payload)


def insert_or_skip(session: Session, table: type[SQLModel], values: Mapping[str, Any]) -> bool:
    """Insert one row unless a unique key of it is taken. True if it was new. Safe among concurrent writers."""
    connection = session.connection()
    return connection.execute(_insert_into(table, connection.dialect.name), dict(values)).first() is not None


@lru_cache
def _insert_into(table: type[SQLModel], dialect: str) -> ReturningInsert[str]:
    """The statement, built once, because building costs more than running it."""
    insert: postgresql.Insert | sqlite.Insert
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    # The row itself decides: on PostgreSQL an INSERT's rowcount is -1 here, which reads as True.
    return insert.on_conflict_do_nothing().returning(literal_column("1"))


def lease(session: Session, table: type[J], worker: str, *, limit: int = 1, seconds: float = 60.0) -> Sequence[Leased]:
    """Up to `limit` jobs, oldest first, each leased to `worker` for `seconds`."""
    now = time.time()
    due = (
        select(col(table.subject))
        .where(
            or_(
                (col(table.state) == "queued") & (col(table.run_after) <= now),
                (col(table.state) == "leased") & (col(table.lease_until) < now),
            )
        )
        .order_by(col(table.created_at))
        .limit(limit)
    )
    if session.get_bind().dialect.name == "postgresql":
        due = due.with_for_update(skip_locked=True)
    subjects = [row[0] for row in session.connection().execute(due)]
    if not subjects:
        return []
    taken = session.connection().execute(
        update(table)
        .where(col(table.subject).in_(subjects), or_(col(table.state) == "queued", col(table.lease_until) < now))
        .values(state="leased", worker=worker, lease_until=now + seconds, attempts=col(table.attempts) + 1)
        .returning(col(table.subject), col(table.payload), col(table.attempts))
    )
    rows = {row[0]: row for row in taken}
    return [Leased(subject, rows[subject][1], rows[subject][2], worker) for subject in subjects if subject in rows]


def due_at(session: Session, table: type[JobRow]) -> float:
    """When the next waiting job is due, or a leased one comes back, in seconds since the epoch. Infinite if none
    waits.
    """
    times = case((col(table.state) == "queued", col(table.run_after)), else_=col(table.lease_until))
    found = session.connection().execute(select(func.min(times)).where(col(table.state).in_(("queued", "leased"))))
    first = found.scalar_one()
    return math.inf if first is None else float(first)


def finish(session: Session, table: type[JobRow], job: Leased) -> bool:
    """Mark the job as done. False if the lease was lost and another worker has the job."""
    return _end(session, table, job, state="done", ended_at=time.time(), error=None)


def fail(
    session: Session, table: type[JobRow], job: Leased, error: str, *, max_attempts: int, delay: float = 1.0
) -> bool:
    """Give the job back after a failure, or mark it dead. True if dead. The next try waits `delay` × 2^(attempt−1) s,
    at most a minute.
    """
    is_dead = job.attempt >= max_attempts
    now = time.time()
    if is_dead:
        _end(session, table, job, state="dead", ended_at=now, error=error[:2000])
    else:
        _end(
            session,
            table,
            job,
            state="queued",
            run_after=now + min(60.0, delay * 2.0 ** min(job.attempt - 1, 10)),
            error=error[:2000],
        )
    return is_dead


def hold(session: Session, table: type[JobRow], job: Leased, reason: str) -> bool:
    """Set the job aside, with the reason, until `release`. That is no try. False if the lease was lost."""
    return _end(session, table, job, state="held", error=reason[:2000], attempts=job.attempt - 1)


def release(session: Session, table: type[JobRow]) -> int:
    """Queue all held jobs again. Returns how many."""
    held = update(table).where(col(table.state) == "held").values(state="queued", run_after=0.0, error=None)
    return int(session.connection().execute(held).rowcount)


def explain_held(session: Session, table: type[JobRow], reason: str) -> None:
    """Give all held jobs this reason."""
    held = update(table).where(col(table.state) == "held").values(error=reason[:2000])
    session.connection().execute(held)


def take_lease(session: Session, name: str, holder: str, seconds: float) -> bool:
    """Take or renew the lease `name` on work that one process may do at a time. False while another one has it."""
    now = time.time()
    mine: dict[str, object] = {"holder": holder, "until": now + seconds}
    if insert_or_skip(session, LeaseRow, {"name": name, **mine}):
        return True
    is_free = (col(LeaseRow.holder) == holder) | (col(LeaseRow.until) <= now)
    taken = session.connection().execute(update(LeaseRow).where(col(LeaseRow.name) == name, is_free).values(**mine))
    return bool(taken.rowcount)


def counts(session: Session, table: type[JobRow]) -> dict[str, int]:
    """How many jobs are in each state, at most `COUNTED` of each."""
    found = {}
    for state in STATES:
        some = select(literal_column("1")).where(col(table.state) == state).limit(COUNTED).subquery()
        if number := session.connection().execute(select(func.count()).select_from(some)).scalar_one():
            found[state] = int(number)
    return found


def _end(session: Session, table: type[JobRow], job: Leased, **values: Any) -> bool:
    held = {"held_subject": job.subject, "held_worker": job.worker, "held_attempt": job.attempt}
    return bool(session.connection().execute(_ending(table.__tablename__, tuple(values)), {**values, **held}).rowcount)


@lru_cache
def _ending(table: str, columns: tuple[str, ...]) -> TextClause:
    """The statement that sets `columns` of a job while its lease is held. Text, because building costs more than
    running it.
    """
    return text(
        f"UPDATE {table} SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE subject = :held_subject "
        "AND worker = :held_worker AND state = 'leased' AND attempts = :held_attempt"
    )
