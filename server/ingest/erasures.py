"""Erasures: what an operator asked to forget, and what is older than the settings allow, is taken out of the journal,
the segments and the versions' probes.

The ingester does this, because it alone knows which segments have been read. The order makes a crash harmless: versions
are noted before the turns that lead to them go, and every part can be done again. A job is done when the database's
files have been rewritten. A turn that had begun before the erasure was asked for and is read later is left out.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import Select, delete, func, select
from sqlmodel import Session, col

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import audit
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import refresh, routes_file
from burnish.adapters.verbs import privacy
from burnish.config import Settings
from burnish.errors import AdapterError, JournalError, Postponed
from burnish.journal import Journal, jobs
from burnish.journal.changes import Rest
from burnish.journal.privacy import erasure
from burnish.journal.tables import AuditRow, ErasureJob, FeedbackRow, InteractionRow
from burnish.keys import MAX_VOTE_TTL
from burnish.records import Interaction, Who, who_of
from burnish.segments.frames import Record
from burnish.server.ingest.segment_folder import SegmentFolder

log = structlog.get_logger(__name__)
DAY = 86_400.0
LOOK, LOOK_AGAIN = 1.0, 0.25
"""Seconds between two looks for a new erasure, and for one that waits."""
SWEEP = DAY
"""Seconds between two looks for what has become too old. Each may rewrite the database."""
MEASURE = 600.0
"""Seconds between two looks at the journal's size."""
ROOM = 0.9
"""Share of the largest size that is left when the journal was too large, so that it does not grow beyond at once."""
LEASE = 30.0
KEEP_TRYING = 1_000_000
ACTOR = "erasure"


class _Gone(Counter[str]):
    """What one look for old things has erased, and its entry in the audit log. Each of the look's transactions adds to
    both.
    """

    ACTION = "expire"

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why
        self._audit_id: int | None = None

    def note(self, session: Session, **counts: int) -> None:
        if not any(counts.values()):
            return
        self.update({name: n for name, n in counts.items() if n})
        if self._audit_id is None:
            row = audit.record(session, "ingester", self.ACTION, "journal", None, None, self._why)
            session.flush()
            self._audit_id = row.audit_id
        session.get_one(AuditRow, self._audit_id).after = ", ".join(f"{n} {name}" for name, n in self.items())


class Erasures:
    """One per ingester."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._store = AdapterStore.of(settings)
        self._next_look = self._next_sweep = self._next_measure = 0.0
        self._asked: dict[str, float] | None = None
        self._rest = Rest(journal.changes)
        self._has_none = False
        self.alive: Callable[[], object] = lambda: None

    def is_erased(self, record: Record) -> bool:
        """True for a record that began before its voice's erasure was asked for."""
        if not (asked := self._known()):
            return False
        began = record.started_at if isinstance(record, Interaction) else record.created_at
        return began < asked.get(erasure.subject_of(_who(record)), 0.0)

    def run_once(self, folder: SegmentFolder) -> bool:
        """Carry out one erasure, if one is due. True if something was erased, whatever became of the rest."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + SWEEP
            if self._expire(folder, time.time()):
                return True
        if "gigabytes" in self._settings.journal.keep and time.monotonic() >= self._next_measure:
            self._next_measure = time.monotonic() + MEASURE
            if self._shrink():
                return True
        if self._has_none and not self._rest.is_over():
            return False
        self._rest.begin()
        with self._journal.read() as session:
            asked = select(col(ErasureJob.subject)).where(col(ErasureJob.state) != "done")
            self._has_none = session.scalars(asked).first() is None
        if self._has_none:
            return False
        with self._journal.write() as session:
            job = next(iter(jobs.lease(session, ErasureJob, ACTOR, seconds=LEASE)), None)
            asked_at = session.get_one(ErasureJob, job.subject).created_at if job is not None else 0.0
        if job is None:
            return False
        self._asked = None
        try:
            if "kind" in job.payload:
                self._erase(job, asked_at, folder)
            self._rewrite()
            with self._journal.write() as session:
                jobs.finish(session, ErasureJob, job)
        except (Postponed, JournalError, AdapterError, OSError) as error:
            log.warning("an erasure waits", erasure=job.subject, reason=str(error))
            with self._journal.write() as session:
                jobs.fail(session, ErasureJob, job, str(error), max_attempts=KEEP_TRYING, delay=LOOK_AGAIN)
            self._next_look = time.monotonic() + LOOK_AGAIN
        return True

    def _erase(self, job: jobs.Leased, asked_at: float, folder: SegmentFolder) -> None:
        """All but what the database's files keep of deleted rows. Raises Postponed while a gateway still writes to an
        old segment.
        """
        given = job.payload
        who: Who = (given["tenant"], given["kind"], given["name"])
        folder.leave(asked_at)
        with self._journal.read() as session:
            mine = (*erasure.turns_of(who), col(InteractionRow.started_at) < asked_at)
            names = list(session.scalars(select(col(InteractionRow.interaction_id)).where(*mine)))
            said = self._learned(session, who, names, asked_at)
            used = said.versions | privacy.used_again(self._store, session, names, said)
        self._note(job.subject, versions={str(name) for name in used})
        with self._journal.write() as session:
            privacy.stop(session, used, given["actor"])
        for start in range(0, len(names), erasure.AT_ONCE):
            self._erase_turns(job.subject, names[start : start + erasure.AT_ONCE], given["actor"])
        self._erase_voice(job.subject, who, asked_at, given["actor"])
        n_segments, n_unreadable = folder.erase(asked_at, lambda record: _who(record) == who)
        with self._journal.write() as session:
            n_texts = erasure.drop_unused(session)
        self._note(job.subject, n_segments=n_segments, n_unreadable=n_unreadable, n_texts=n_texts)
        with self._journal.write() as session:  # nothing names the voice any more
            row = session.get_one(ErasureJob, job.subject)
            report: dict[str, Any] = dict(row.payload["report"])  # type: ignore[call-overload]
            row.payload = {"report": report}
            done = f"{report['n_turns']} turns, {report['n_feedback']} feedback"
            told = (given["actor"], "forgotten", job.subject, None, done, given["reason"])
            audit.record(session, *told, tenant=who[0])

    @staticmethod
    def _learned(session: Session, who: Who, names: list[str], asked_at: float) -> erasure.Learned:
        """What steps learned from the voice about others' turns: from its feedback, and from what it said next."""
        told = erasure.learned_from(session, *erasure.feedback_of(who), col(FeedbackRow.created_at) < asked_at)
        touched = erasure.followed(session, names)
        versions = told.versions | erasure.trained_on(session, sorted(touched))
        return erasure.Learned(told.records, told.turns | touched, versions)

    def _expire(self, folder: SegmentFolder, now: float) -> bool:
        """Erase what is older than the settings allow. True if there was anything."""
        horizons = {name: now - days * DAY for name, days in self._settings.journal.keep.items()}
        gone = _Gone("older than journal.keep allows")
        if (horizon := horizons.get("turns")) is not None:
            old = select(col(InteractionRow.interaction_id)).where(col(InteractionRow.ended_at) < horizon)
            self._erase_old(old, gone)
            n_files = folder.remove_aside(horizon)
            with self._journal.write() as session:
                unattached = (col(FeedbackRow.interaction_id).is_(None), col(FeedbackRow.created_at) < horizon)
                gone.note(session, feedback=erasure.erase_feedback(session, *unattached).n_feedback, files=n_files)
        with self._journal.write() as session:
            if (horizon := horizons.get("feedback")) is not None:
                n_feedback = erasure.erase_feedback(session, col(FeedbackRow.created_at) < horizon).n_feedback
                gone.note(session, feedback=n_feedback)
            if (horizon := horizons.get("audit")) is not None:
                horizon = min(horizon, now - MAX_VOTE_TTL)  # it says which user tokens are revoked
                done = (col(ErasureJob.state) == "done", col(ErasureJob.created_at) < horizon)
                execute = session.connection().execute
                old_entries = delete(AuditRow).where(col(AuditRow.at) < horizon)
                # its own entries are not counted: each day would erase one and write one
                n_entries = execute(old_entries.where(col(AuditRow.action) != _Gone.ACTION)).rowcount
                execute(old_entries)
                n_erasures = execute(delete(ErasureJob).where(*done)).rowcount
                gone.note(session, entries=n_entries, erasures=n_erasures)
            if gone:
                erasure.drop_unused(session)
        if gone:
            log.info("erased what is older than the settings allow", n=gone.total())
            self._compact()
        return bool(gone)

    def _shrink(self) -> bool:
        """Erase the oldest turns of a journal that is larger than the settings allow. True if there were any."""
        limit = self._settings.journal.keep["gigabytes"] * 1e9
        size = self._journal.size()
        if size <= limit:
            return False
        with self._journal.read() as session:
            n_turns = int(session.scalar(select(func.count()).select_from(InteractionRow)) or 0)
        n = math.ceil(n_turns * (1.0 - ROOM * limit / size))
        oldest = select(col(InteractionRow.interaction_id)).order_by(col(InteractionRow.ended_at)).limit(n)
        gone = _Gone("the journal is larger than journal.keep allows")
        self._erase_old(oldest, gone)
        if not gone:
            return False
        with self._journal.write() as session:
            erasure.drop_unused(session)
        self._compact()
        log.info("erased the oldest turns, to keep the journal small", n=gone["turns"], gigabytes=round(size / 1e9, 3))
        return True

    def _erase_old(self, names_of: Select[str], gone: "_Gone") -> None:
        with self._journal.read() as session:
            names = list(session.scalars(names_of))
            privacy.used_again(self._store, session, names)
        for start in range(0, len(names), erasure.AT_ONCE):
            self.alive()
            with self._journal.write() as session:
                some = erasure.erase_turns(session, names[start : start + erasure.AT_ONCE])
                gone.note(session, turns=len(some.turns), feedback=some.n_feedback)

    def _compact(self) -> None:
        """Rewrite the database's files. If a reader is in the way, the next sweep does it."""
        try:
            self._rewrite()
        except JournalError as error:
            log.warning("the journal is not compacted", reason=str(error))

    def _rewrite(self) -> None:
        """A large journal takes minutes, in which `alive` is called."""
        is_over = threading.Event()

        def tell() -> None:
            while not is_over.wait(1.0):
                self.alive()

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        try:
            self._journal.compact()
        finally:
            is_over.set()
            telling.join()

    def _erase_turns(self, subject: str, names: list[str], actor: str) -> None:
        with self._journal.write() as session:
            gone = erasure.erase_turns(session, names)
            used = erasure.trained_on(session, [*names, *gone.touched], sorted(gone.groups))
            privacy.stop(session, used, actor)
            versions = {str(name) for name in used}
            _add(session, subject, {"n_turns": len(gone.turns), "n_feedback": gone.n_feedback, "versions": versions})

    def _erase_voice(self, subject: str, who: Who, asked_at: float, actor: str) -> None:
        """The voice's feedback on other turns, its keys and its personal agents."""
        with self._journal.write() as session:
            told = (*erasure.feedback_of(who), col(FeedbackRow.created_at) < asked_at)
            gone = erasure.erase_feedback(session, *told)
            used = erasure.trained_on(session, (), sorted(gone.groups))
            privacy.stop(session, used, actor)
            n_keys, agents = privacy.forget_user(session, who, actor)
            versions = {str(name) for name in used}
            _add(session, subject, {"n_feedback": gone.n_feedback, "n_keys": n_keys, "versions": versions})
        privacy.remove_files(self._store, agents)
        for agent in agents:
            publish.sync(self._journal, routes_file(self._settings), agent)
        if who[1] == "user":
            refresh(self._settings, self._journal)

    def _note(self, subject: str, **facts: Any) -> None:
        with self._journal.write() as session:
            _add(session, subject, facts)

    def _known(self) -> Mapping[str, float]:
        """When each voice's erasure was asked for."""
        if self._asked is None:
            with self._journal.read() as session:
                found = session.connection().execute(select(col(ErasureJob.subject), col(ErasureJob.created_at)))
                self._asked = {str(subject): float(at) for subject, at in found}
        return self._asked


def _who(record: Record) -> Who:
    return who_of(record.tenant, record.key_id, record.user)


def _add(session: Session, subject: str, facts: Mapping[str, Any]) -> None:
    """Add to what the erasure has erased so far. An interrupted try may have erased a part."""
    row = session.get_one(ErasureJob, subject, populate_existing=True)
    report: dict[str, Any] = {"n_turns": 0, "n_feedback": 0, "n_keys": 0, "versions": []}
    report |= dict(row.payload.get("report") or {})  # type: ignore[call-overload]
    for name, value in facts.items():
        if name == "versions":
            report[name] = sorted({*report[name], *value})
        else:
            report[name] = report.get(name, 0) + value
    row.payload = {**row.payload, "report": report}
