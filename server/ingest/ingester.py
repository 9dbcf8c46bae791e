"""The ingester: moves segments into SQL, each record once, in the order in which the records ended.

It reads all gateways' segments up to a watermark a moment in the past. So a reply is always ingested before the request
that continues it. Interactions are keyed by id, so reading a frame twice changes nothing. A segment that cannot be read
further is marked, reported and left in place.
"""

import heapq
import math
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col

from burnish.config import Personal
from burnish.errors import SegmentError
from burnish.journal import Journal
from burnish.journal.tables import SegmentRow, SessionRow
from burnish.records import Feedback, Interaction, NextStateKind
from burnish.segments.file import read
from burnish.segments.frames import Record
from burnish.server.ingest import feedback, lookup
from burnish.server.ingest.filing import Filing
from burnish.server.ingest.next_state import note_ended
from burnish.server.ingest.personal_requests import PersonalRequests
from burnish.server.ingest.prepared import Prepared, without_unstorable

log = structlog.get_logger()
SETTLE_SECONDS = 0.05
FEEDBACK_SECONDS = 168 * 3600.0
"""Seconds for which feedback waits for its reply before it expires."""
BATCH = 64
"""Records held at a time."""
HOLD = 0.03
"""Seconds after which a transaction takes no further record, because others wait for SQLite's write lock, for example a
rollback.
"""
BREATH = 0.002
"""Seconds between two transactions, in which a waiting writer gets its turn."""


class _New(NamedTuple):
    """A record that is not in SQL yet, and the offset after it in its segment."""

    ended_at: float
    segment: str
    behind: int
    record: Record | None
    """None for a frame that nobody can read."""


class _Ready(NamedTuple):
    """A record that can be filed. None if it cannot be stored."""

    segment: str
    behind: int
    record: Feedback | Prepared | None


class Ingester:
    """One per journal. `run_once` reads what is new and returns how many records it took.

    `session_timeout`: seconds after which a quiet conversation is closed. `feedback_ttl`: seconds for which feedback
    waits for its reply. `verifiers`: tools whose results count as verdicts. `personal`: whether end users get personal
    agents.
    """

    def __init__(
        self,
        journal: Journal,
        folder: Path,
        *,
        session_timeout: float,
        feedback_ttl: float = math.inf,
        verifiers: Collection[str] = (),
        personal: Personal | None = None,
    ) -> None:
        self._journal = journal
        self._folder = folder
        self._session_timeout = session_timeout
        self._feedback_ttl = feedback_ttl
        self._next_sweep = 0.0
        self._filing = Filing(verifiers)
        self._personal_requests = PersonalRequests(personal or Personal())

    def run_once(self) -> int:
        """Ingest everything older than the watermark."""
        watermark = time.time() - SETTLE_SECONDS
        with self._journal.read() as session:
            cursors = {row.name: row for row in session.scalars(select(SegmentRow))}
        damaged: dict[str, SegmentError] = {}
        n_taken = 0
        for found in self._batches(cursors, watermark, damaged):
            batch = [_Ready(new.segment, new.behind, _prepared(new.record)) for new in found]
            while batch:
                n_filed = self._file_some(batch)
                batch = batch[n_filed:]
                n_taken += n_filed
                time.sleep(BREATH)
        for name, error in damaged.items():  # only now, when everything before the damage has been taken
            self._mark_damaged(name, error)
        if time.time() >= self._next_sweep:
            self._close_idle()
            self._expire_feedback()
            self._next_sweep = time.time() + min(60.0, self._session_timeout / 4, self._feedback_ttl / 4)
        return n_taken

    def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Ingest until `is_stopping()`. An unreachable database is waited for, and nothing is lost."""
        while not is_stopping():
            try:
                n_taken = self.run_once()
            except OperationalError as error:
                log.warning("the journal does not answer; records wait in the segments", error=str(error.orig))
                time.sleep(2.0)
                continue
            if n_taken < BATCH:
                time.sleep(interval)

    def _batches(
        self, cursors: dict[str, SegmentRow], watermark: float, damaged: dict[str, SegmentError]
    ) -> Iterator[list[_New]]:
        """New records of all segments in the order in which they ended, at most a batch in memory.

        A damaged segment is noted in `damaged`.
        """
        segments = []
        for path in sorted(self._folder.glob("*.seg")):
            cursor = cursors.get(path.name)
            if cursor is None or (cursor.error is None and path.stat().st_size != cursor.offset):
                segments.append(_new_in(path, cursor.offset if cursor else 0, watermark, damaged))
        records = heapq.merge(*segments, key=attrgetter("ended_at"))
        while batch := list(islice(records, BATCH)):
            yield batch

    def _file_some(self, batch: list[_Ready]) -> int:
        """File the first records of `batch` in one transaction, as many as `HOLD` allows. Returns how many."""
        ends = time.perf_counter() + HOLD
        n_filed = 0
        try:
            with self._journal.write() as session:
                while n_filed < len(batch) and (not n_filed or time.perf_counter() < ends):
                    self._take(session, batch[n_filed].record)
                    n_filed += 1
                for name, offset in {new.segment: new.behind for new in batch[:n_filed]}.items():
                    session.merge(SegmentRow(name=name, offset=offset))
        except BaseException:
            self._filing.forget()
            self._personal_requests.forget()
            raise
        return n_filed

    def _mark_damaged(self, name: str, error: SegmentError) -> None:
        log.error("a segment is damaged; its rest is left aside", segment=name, error=str(error))
        with self._journal.write() as session:
            row = session.get(SegmentRow, name) or SegmentRow(name=name, offset=0)
            row.error = str(error)
            session.add(row)

    def _take(self, session: Session, record: Feedback | Prepared | None) -> None:
        """Store one record or set it aside: clients shape records, and none of them may stop the others."""
        try:
            with session.begin_nested():
                if isinstance(record, Feedback):
                    feedback.take(session, record)
                elif record is not None and not lookup.is_filed(session, record.turn.interaction_id):
                    self._filing.take_interaction(session, record)
                    self._personal_requests.note(session, record.turn)
        except OperationalError:
            raise
        except Exception:
            self._filing.forget()
            self._personal_requests.forget()
            assert record is not None, "nothing was done for it"
            _report(record if isinstance(record, Feedback) else record.turn)

    def _close_idle(self) -> None:
        now = time.time()
        with self._journal.write() as session:
            quiet = (col(SessionRow.closed_at).is_(None), col(SessionRow.last_at) < now - self._session_timeout)
            n_closed = session.connection().execute(update(SessionRow).where(*quiet).values(closed_at=now)).rowcount
            n_left = note_ended(session, NextStateKind.ABANDONED, now) if n_closed else 0
        if n_closed:
            log.info("closed quiet conversations", n_sessions=n_closed, n_unanswered=n_left)

    def _expire_feedback(self) -> None:
        if math.isinf(self._feedback_ttl):
            return
        with self._journal.write() as session:
            n_expired = feedback.expire(session, self._feedback_ttl)
        if n_expired:
            log.warning("feedback expired: what it is about never came", n_expired=n_expired)


def _new_in(path: Path, offset: int, watermark: float, damaged: dict[str, SegmentError]) -> Iterator[_New]:
    """One segment's records from `offset` up to the watermark. Their times never fall, so no cursor skips one."""
    latest = 0.0
    try:
        for record, behind in read(path, offset):
            latest = max(latest, _ended_at(record) if record is not None else 0.0)
            if latest >= watermark:
                return
            yield _New(latest, path.name, behind, record)
    except SegmentError as error:
        damaged[path.name] = error


def _ended_at(record: Record) -> float:
    return record.ended_at if isinstance(record, Interaction) else record.created_at


def _prepared(record: Record | None) -> Feedback | Prepared | None:
    """Everything that needs no SQL is worked out here, outside the write lock."""
    if record is None:
        return None
    try:
        clean = without_unstorable(record)
        return clean if isinstance(clean, Feedback) else Prepared.of(clean)
    except Exception:
        _report(record)
        return None


def _report(record: Record) -> None:
    name = record.feedback_id if isinstance(record, Feedback) else record.interaction_id
    log.exception("a record cannot be stored; it stays in its segment", record=name)
