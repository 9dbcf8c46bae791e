"""The ingester: moves segments into SQL, each record once, in the order in which the records ended.

It reads all gateways' segments up to a watermark a moment in the past. So a reply is always ingested before the request
that continues it. Interactions are keyed by id, so reading a frame twice changes nothing. A segment that cannot be read
further is marked and reported (server/ingest/segment_folder.py says what becomes of it).
"""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeGuard

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlmodel import Session, col

from burnish.config import Personal, Settings
from burnish.errors import SegmentError
from burnish.journal import Journal
from burnish.journal.outage import Outage
from burnish.journal.tables import OptOutRow, SessionRow
from burnish.records import Feedback, NextStateKind
from burnish.segments.file import created_at, read
from burnish.segments.frames import Record, ended_at
from burnish.server.ingest import feedback
from burnish.server.ingest.erasures import Erasures
from burnish.server.ingest.filing import Filing
from burnish.server.ingest.next_state import note_ended
from burnish.server.ingest.personal_requests import PersonalRequests
from burnish.server.ingest.prepared import Prepared, without_unstorable
from burnish.server.ingest.segment_folder import SegmentFolder

log = structlog.get_logger()
SETTLE_SECONDS = 0.05
FEEDBACK_SECONDS = 168 * 3600.0
"""Seconds for which feedback waits for its reply before it expires."""
BATCH = 512
"""Records in a batch."""
BATCH_BYTES = 8 * 2**20
"""Bytes of records after which a batch takes no further one."""
N_AHEAD = 2
"""Batches that are read before they are needed, on PostgreSQL. With one, the reader had to wait for the database."""
HOLD = 0.06
"""Seconds that a transaction should take, because others wait for SQLite's write lock, for example a rollback."""
FIRST_GUESS = 0.001
"""Seconds that a record takes, before any was measured."""
MAX_AHEAD = 5.0
"""Seconds by which the clocks of two gateways may differ."""
LOCK = "ingester.lock"
"""The file below `run_dir` that the ingester holds."""
MAX_OPEN = 100
"""Segments that are read at the same time."""
NAP = 0.5
"""Seconds after which an idle ingester looks at its other work."""
BREATH = 0.002
"""Seconds at least between two transactions, in which a waiting writer gets its turn."""


class _New(NamedTuple):
    """A record that is not in SQL yet, its offset in its segment, and the offset after it."""

    ended_at: float
    segment: str
    place: int
    behind: int
    record: Record | None
    """None for a frame that nobody can read."""


class _Ready(NamedTuple):
    """A record that can be filed. None if it cannot be stored; it is set aside."""

    segment: str
    place: int
    behind: int
    record: Feedback | Prepared | None

    def unless(self, opted_out: Collection[str]) -> "_Ready":
        """The same, kept out of training if its user has opted out."""
        return self._replace(record=self.record.unless(opted_out)) if _is_turn(self.record) else self


class Ingester:
    """One per journal. `run_once` reads what is new and returns how many records it took.

    `session_timeout`: seconds after which a quiet conversation is closed. `feedback_ttl`: seconds for which feedback
    waits for its reply. `verifiers`: tools whose results count as verdicts. `personal`: whether end users get personal
    agents. `erasures`: carries out what operators ask to forget; None leaves that to another ingester.
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
        erasures: Erasures | None = None,
    ) -> None:
        self._journal = journal
        self._folder = SegmentFolder(journal, folder)
        self._session_timeout = session_timeout
        self._feedback_ttl = feedback_ttl
        self._next_sweep = 0.0
        self._filing = Filing(verifiers)
        self._seconds_each = FIRST_GUESS
        self._unlocked_at = 0.0
        self._reader = ThreadPoolExecutor(1, "reader")
        self._personal_requests = PersonalRequests(personal or Personal())
        self._erasures = erasures

    @classmethod
    def of(cls, settings: Settings, journal: Journal) -> "Ingester":
        """The ingester of a server with these settings."""
        return cls(
            journal,
            settings.segments_dir,
            session_timeout=settings.journal.session_timeout,
            feedback_ttl=FEEDBACK_SECONDS,
            verifiers=settings.journal.verifiers,
            personal=settings.personal,
            erasures=Erasures(settings, journal),
        )

    def run_once(self) -> int:
        """Ingest everything older than the watermark."""
        watermark = time.time() - SETTLE_SECONDS
        damaged: dict[str, SegmentError] = {}
        n_taken = 0
        batches = self._batches(self._folder.unread(), watermark, damaged)
        for batch in batches if self._journal.has_one_writer else self._ahead(batches):
            while batch:
                n_filed = self._file_some(batch)
                batch = batch[n_filed:]
                n_taken += n_filed
        for name, error in damaged.items():  # only now, when everything before the damage has been taken
            self._folder.mark_damaged(name, error)
        if time.time() >= self._next_sweep:
            self._close_idle()
            self._expire_feedback()
            self._folder.remove_filed()
            self._next_sweep = time.time() + min(60.0, self._session_timeout / 4, self._feedback_ttl / 4)
        if self._erasures is not None and self._erasures.run_once(self._folder):
            self._forget()  # texts that are remembered as stored may be gone
        return n_taken

    def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Ingest until `is_stopping()`. An unreachable database or disk is waited for, and nothing is lost."""
        outage, watch = Outage(), self._folder.watch()
        if self._erasures is not None:
            self._erasures.alive = is_stopping
        while not is_stopping():
            try:
                n_taken = self.run_once()
                outage.over()
                if n_taken < BATCH:
                    time.sleep(interval)
                if not n_taken and watch is not None and not self._folder.unread():
                    watch.wait(NAP)
            except (SQLAlchemyError, OSError) as error:
                time.sleep(outage.pause(error))
        if watch is not None:
            watch.close()

    def _batches(
        self, segments: Sequence[tuple[Path, int]], watermark: float, damaged: dict[str, SegmentError]
    ) -> Iterator[list[_Ready]]:
        """New records of `segments` in the order in which they ended, in batches.

        A damaged segment is noted in `damaged`.
        """
        found = [(created_at(path), _new_in(path, offset, watermark, damaged)) for path, offset in segments]
        batch: list[_Ready] = []
        n_bytes, n_most = 0, self._n_at_once
        for new in _merged(found):
            batch.append(_Ready(new.segment, new.place, new.behind, _prepared(new.record)))
            n_bytes += new.behind - new.place
            if len(batch) >= n_most or n_bytes >= BATCH_BYTES:
                yield batch
                batch, n_bytes, n_most = [], 0, self._n_at_once
        if batch:
            yield batch

    def _ahead(self, batches: Iterator[list[_Ready]]) -> Iterator[list[_Ready]]:
        """Batches are read while those before them are filed: the database works in processes of its own meanwhile.

        Where there is one writer at a time, that would only make the others wait longer.
        """
        coming = deque(self._reader.submit(next, batches, None) for _ in range(N_AHEAD))
        try:
            while (batch := coming.popleft().result()) is not None:
                coming.append(self._reader.submit(next, batches, None))
                yield batch
        finally:
            for later in coming:
                later.cancel()

    def _file_some(self, batch: list[_Ready]) -> int:
        """File `batch` in one transaction, together with the segments' offsets. Returns how many records were filed.

        If a record cannot be stored, only those before it are filed, then it is set aside: clients shape records, and
        none of them may stop the others.
        """
        try:
            self._file(batch)
            return len(batch)
        except (OperationalError, OSError):
            raise
        except Exception:
            if len(batch) > 1:
                return self._file_some(batch[: len(batch) // 2])
            record = batch[0].record
            assert record is not None, "nothing was done for it"
            _report(record if isinstance(record, Feedback) else record.turn)
            return self._file_some([batch[0]._replace(record=None)])

    @property
    def _n_at_once(self) -> float:
        """Records of a transaction. It is short where everybody else waits for it."""
        return min(BATCH, HOLD / self._seconds_each) if self._journal.has_one_writer else BATCH

    def _file(self, batch: list[_Ready]) -> None:
        if self._journal.has_one_writer and (breath := BREATH - (time.perf_counter() - self._unlocked_at)) > 0.0:
            time.sleep(breath)
        started = time.perf_counter()
        kept = [ready for ready in batch if not self._is_erased(ready.record)]
        try:
            with self._journal.write() as session:
                if opted_out := set(session.connection().scalars(_OPTED_OUT)):  # while the records were on their way
                    kept = [ready.unless(opted_out) for ready in kept]
                self._filing.begin(ready.record for ready in kept if _is_turn(ready.record))
                for ready in kept:
                    self._take(session, ready)
                self._filing.finish(session)
                for name, offset in {ready.segment: ready.behind for ready in batch}.items():
                    self._folder.move(session, name, offset)
        except BaseException:
            self._forget()
            raise
        self._unlocked_at = time.perf_counter()
        seconds_each = (self._unlocked_at - started) / len(batch)
        self._seconds_each += 0.3 * (seconds_each - self._seconds_each)

    def _forget(self) -> None:
        """What is remembered of the journal may not be there."""
        self._filing.forget()
        self._personal_requests.forget()
        self._folder.forget()

    def _is_erased(self, record: Prepared | Feedback | None) -> bool:
        if record is None or self._erasures is None:
            return False
        return self._erasures.is_erased(record if isinstance(record, Feedback) else record.turn)

    def _take(self, session: Session, ready: _Ready) -> None:
        record = ready.record
        if record is None:
            self._folder.set_aside(ready.segment, ready.place)
        elif isinstance(record, Feedback) or record.turn.remark is not None:
            self._filing.take_feedback(session, record)
        elif self._filing.take_interaction(session, record):
            self._personal_requests.note(session, record.turn)

    def _close_idle(self) -> None:
        now = time.time()
        with self._journal.write() as session:
            quiet = (col(SessionRow.closed_at).is_(None), col(SessionRow.last_at) < now - self._session_timeout)
            closing = update(SessionRow).where(*quiet).values(closed_at=now).returning(col(SessionRow.session_id))
            closed = session.connection().execute(closing).scalars().all()
            n_left = note_ended(session, NextStateKind.ABANDONED, closed)
        if closed:
            log.info("closed quiet conversations", n_sessions=len(closed), n_unanswered=n_left)

    def _expire_feedback(self) -> None:
        if math.isinf(self._feedback_ttl):
            return
        with self._journal.write() as session:
            n_expired = feedback.expire(session, self._feedback_ttl)
        if n_expired:
            log.warning("feedback expired: what it is about never came", n_expired=n_expired)


_OPTED_OUT = select(col(OptOutRow.voice))


def _new_in(path: Path, offset: int, watermark: float, damaged: dict[str, SegmentError]) -> Iterator[_New]:
    """One segment's records from `offset` up to the watermark. Their times never fall, so no cursor skips one.

    A time far ahead is the mistake of a clock and stops nobody: such a record counts as old as the one before it.
    """
    latest, place = 0.0, offset
    horizon = watermark + MAX_AHEAD
    try:
        for record, behind in read(path, offset):
            at = ended_at(record) if record is not None else 0.0
            latest = max(latest, at if at < horizon else 0.0)
            if latest >= watermark:
                return
            yield _New(latest, path.name, place, behind, record)
            place = behind
    except FileNotFoundError:
        return
    except SegmentError as error:
        damaged[path.name] = error


def _merged(segments: Sequence[tuple[float, Iterator[_New]]]) -> Iterator[_New]:
    """The records of `segments`, oldest first, each given with its oldest possible time.

    A segment is opened when its time comes, and at most `MAX_OPEN` are at once: a process has few file handles.
    """
    waiting = deque(sorted(segments, key=itemgetter(0)))
    open_now: list[tuple[float, int, _New, Iterator[_New]]] = []
    n_opened = 0
    while waiting or open_now:
        while waiting and len(open_now) < MAX_OPEN and (not open_now or waiting[0][0] <= open_now[0][0]):
            _, records = waiting.popleft()
            n_opened += 1
            if (first := next(records, None)) is not None:
                heapq.heappush(open_now, (first.ended_at, n_opened, first, records))
        if not open_now:
            continue
        _, number, oldest, records = open_now[0]
        yield oldest
        if (following := next(records, None)) is not None:
            heapq.heapreplace(open_now, (following.ended_at, number, following, records))
        else:
            heapq.heappop(open_now)


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


def _is_turn(record: Feedback | Prepared | None) -> TypeGuard[Prepared]:
    return isinstance(record, Prepared) and record.turn.remark is None


def _report(record: Record) -> None:
    name = record.feedback_id if isinstance(record, Feedback) else record.interaction_id
    log.exception("a record cannot be stored", record=name)
