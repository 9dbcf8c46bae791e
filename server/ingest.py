"""The ingester: moves segments into SQL, once each, in the order in which their records ended.

It reads all gateways' segments in the order in which their records ended, up to a watermark a moment in the past, so that
a reply is always ingested before the request that continues it. Interactions are keyed by id: reading a frame twice
changes nothing. A segment that cannot be read any further is marked, reported and left in place.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from burnish.errors import SegmentError
from burnish.journal import Journal
from burnish.journal.blobs import storable
from burnish.journal.tables import InteractionRow, SegmentRow, SessionRow
from burnish.records import Feedback, Interaction
from burnish.segments import Record, read
from server.filing import Filing

log = structlog.get_logger()
SETTLE_SECONDS = 0.05
BATCH = 64
"""Records in one transaction. Others wait for SQLite's write lock meanwhile, ten seconds at most: 512 records on a busy machine
held it longer, and judge, swapper and learner gave up and were started again."""
BREATH = 0.005
"""Seconds between two transactions, in which one of those who wait gets its turn."""


class Ingester:
    """One per journal. `run_once` reads what is there and says how many records it took."""

    def __init__(self, journal: Journal, folder: Path, *, session_ttl: float) -> None:
        self._journal = journal
        self._folder = folder
        self._session_ttl = session_ttl
        self._next_sweep = 0.0
        self._filing = Filing()

    def run_once(self) -> int:
        """Ingest everything older than the watermark."""
        watermark = time.time() - SETTLE_SECONDS
        with self._journal.read() as session:
            cursors = {row.name: row for row in session.scalars(select(SegmentRow))}
        damaged: dict[str, SegmentError] = {}
        records = sorted(self._new_records(cursors, watermark, damaged), key=lambda item: item[0])
        for start in range(0, len(records), BATCH):
            try:
                with self._journal.write() as session:
                    batch = records[start : start + BATCH]
                    for _, _, _, record in batch:
                        self._take(session, record)
                    for name, offset in {name: offset for _, name, offset, _ in batch}.items():
                        session.merge(SegmentRow(name=name, offset=offset))
            except BaseException:
                self._filing.forget()
                raise
            time.sleep(BREATH)
        for name, error in damaged.items():  # only now: what stands before the damage has been taken
            self._mark_damaged(name, error)
        if time.time() >= self._next_sweep:
            self._close_idle()
            self._next_sweep = time.time() + min(60.0, self._session_ttl / 4)
        return len(records)

    def run_forever(self, poll_interval: float, is_stopping: Any) -> None:
        """Ingest until `is_stopping()`; an unreachable database is waited for, nothing is lost meanwhile."""
        while not is_stopping():
            try:
                n_taken = self.run_once()
            except OperationalError as error:
                log.warning("the journal does not answer; records wait in the segments", error=str(error.orig))
                time.sleep(2.0)
                continue
            if n_taken < BATCH:
                time.sleep(poll_interval)

    def _new_records(
        self, cursors: dict[str, SegmentRow], watermark: float, damaged: dict[str, SegmentError]
    ) -> Iterator[tuple[float, str, int, Record]]:
        """New records as (time, segment, offset behind it, record); times never fall within a segment: no cursor skips one.

        A segment with damage is noted in `damaged`.
        """
        for path in sorted(self._folder.glob("*.seg")):
            cursor = cursors.get(path.name)
            if cursor is not None and (cursor.error is not None or path.stat().st_size == cursor.offset):
                continue
            offset, latest = (cursor.offset if cursor else 0), 0.0
            try:
                for record, behind in read(path, offset):
                    latest = max(latest, _ended_at(record))
                    if latest >= watermark:
                        break
                    offset = behind
                    yield latest, path.name, offset, record
            except SegmentError as error:
                damaged[path.name] = error

    def _mark_damaged(self, name: str, error: SegmentError) -> None:
        log.error("a segment is damaged; its rest is left aside", segment=name, error=str(error))
        with self._journal.write() as session:
            row = session.get(SegmentRow, name) or SegmentRow(name=name, offset=0)
            row.error = str(error)
            session.add(row)

    def _take(self, session: Session, record: Record) -> None:
        """Store one record, or leave it aside: clients shape records, and none of them may stop the others."""
        record = _storable(record)
        try:
            with session.begin_nested():
                if isinstance(record, Feedback):
                    self._filing.take_feedback(session, record)
                elif session.get(InteractionRow, record.interaction_id) is None:
                    self._filing.take_interaction(session, record)
        except OperationalError:
            raise
        except Exception:
            self._filing.forget()
            name = record.feedback_id if isinstance(record, Feedback) else record.interaction_id
            log.exception("a record cannot be stored; it stays in its segment", record=name)

    def _close_idle(self) -> None:
        columns: Any = SessionRow
        horizon = time.time() - self._session_ttl
        with self._journal.write() as session:
            idle = update(columns).where(columns.closed_at.is_(None), columns.last_at < horizon).values(closed_at=time.time())
            n_closed = session.connection().execute(idle).rowcount
        if n_closed:
            log.info("closed quiet conversations", n_sessions=n_closed)


def _ended_at(record: Record) -> float:
    return record.ended_at if isinstance(record, Interaction) else record.created_at


def _storable(record: Record) -> Record:
    """`record` without what no text column holds: NUL, which PostgreSQL refuses, and halves of surrogate pairs."""
    texts = {name: value for name in record.__dataclass_fields__ if isinstance(value := getattr(record, name), str)}
    changed: dict[str, Any] = {name: clean for name, text in texts.items() if (clean := storable(text)) != text}
    return replace(record, **changed) if changed else record
