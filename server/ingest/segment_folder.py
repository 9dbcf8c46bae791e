"""The segments as the ingester sees them: what is new in them, how far each has been read, and which may go.

A segment is removed once all of it is in the journal for good, its writer has ended, and a grace time is over. What
cannot be read is never removed. A record goes to the folder `aside`, and so does a segment that ends in something else
than a record. `burnish journal vacuum` removes them; put back among the segments, they are read again. An erasure
removes more (server/ingest/erasures.py).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy import delete, select, text
from sqlmodel import Session, col

from burnish.errors import Postponed, SegmentError
from burnish.files import is_held, sync
from burnish.journal import Journal
from burnish.journal.changes.inotify import FolderWatch
from burnish.journal.tables import SegmentRow
from burnish.segments.file import aside_of, ask_for_new_files, asked_for_new_files, copy_frame, created_at, read
from burnish.segments.frames import Record

log = structlog.get_logger(__name__)
GRACE = 3600.0
"""Seconds for which a segment stays after its last record."""
SAME_TICK = 1.0
"""Seconds in which a folder's time may be the same before and after a new file."""


@dataclass(slots=True)
class Cursor:
    """How far one segment has been read. `error` says why its rest cannot be read."""

    offset: int = 0
    error: str | None = None


class SegmentFolder:
    """One per ingester. It remembers all cursors, so that a look at nothing new asks the journal nothing."""

    def __init__(self, journal: Journal, folder: Path) -> None:
        self._journal = journal
        self._folder = folder
        self._cursors: dict[str, Cursor] | None = None
        self._names: list[str] = []
        self._listed_at = 0.0
        self._changed_at = -1

    def unread(self) -> list[tuple[Path, int]]:
        """The segments that may have new records, each with the offset to go on from, oldest first."""
        cursors = self._known()
        found: list[tuple[Path, int]] = []
        for name in self._listed():
            cursor, path = cursors.get(name, Cursor()), self._folder / name
            if cursor.error is None and _size(path) not in (None, cursor.offset):
                found.append((path, cursor.offset))
        return found

    def watch(self) -> FolderWatch | None:
        """Tells when a gateway writes. None if the system cannot."""
        try:
            return FolderWatch(self._folder)
        except OSError:
            return None

    def move(self, session: Session, name: str, offset: int) -> None:
        """Everything before `offset` is in the journal or set aside, once the transaction is committed."""
        self._known()[name] = Cursor(offset)
        session.connection().execute(_MOVE, {"name": name, "offset": offset})

    def forget(self) -> None:
        """Call after a rollback: the cursors are read from the journal again."""
        self._cursors = None

    def set_aside(self, name: str, offset: int) -> None:
        """Keep the record at `offset`, which nobody can read, beyond its segment's end. After a crash it may be there
        twice.
        """
        target = aside_of(self._folder) / f"records-{name}"
        copy_frame(self._folder / name, offset, target)
        log.error("a record cannot be stored; it is set aside", record=f"{name} at {offset}", file=str(target))

    def mark_damaged(self, name: str, error: SegmentError | str) -> None:
        """The segment cannot be read further."""
        log.error("a segment is damaged; its rest is left aside", segment=name, error=str(error))
        cursor = self._known().setdefault(name, Cursor())
        cursor.error = str(error)
        with self._journal.write() as session:
            session.merge(SegmentRow(name=name, offset=cursor.offset, error=cursor.error))

    def remove_filed(self) -> int:
        """Remove segments that are in the journal, and move damaged ones aside. Returns how many segments are gone."""
        cursors, now = self._known(), time.time()
        gone = [name for name in self._listed() if self._is_over(self._folder / name, now)]
        if gone:
            self._journal.sync()  # SQLite has committed records that a power failure could still take
        for name in gone:
            path = self._folder / name
            if cursors.get(name, Cursor()).error is None:
                path.unlink(missing_ok=True)
            else:
                aside_of(self._folder).mkdir(exist_ok=True)
                path.replace(aside_of(self._folder) / name)
        if forgotten := [*gone, *(cursors.keys() - set(self._listed()) if self._names else ())]:
            sync(self._folder)
            with self._journal.write() as session:
                for row in session.scalars(select(SegmentRow).where(col(SegmentRow.name).in_(forgotten))).all():
                    session.delete(row)
            for name in forgotten:
                cursors.pop(name, None)
        return len(gone)

    def leave(self, asked_at: float) -> None:
        """Ask the gateways to leave the segments that began before `asked_at`."""
        if asked_for_new_files(self._folder) < asked_at:
            ask_for_new_files(self._folder)

    def erase(self, asked_at: float, is_erased: Callable[[Record], bool]) -> tuple[int, int]:
        """Remove every segment that began before `asked_at`, and the erased records in `aside`.

        What nobody can read goes too, because nobody knows whose it is. Returns how many segments and how many such
        records or ends of segments have gone. Raises Postponed if a gateway still writes to one, or if one is not in
        the journal yet.
        """
        cursors, n_unreadable = self._known(), 0
        old = [
            path for path in sorted(self._folder.glob("*.seg")) if created_at(path) < asked_at and path.stat().st_size
        ]
        for path in old:
            if is_held(path):
                raise Postponed(f"a gateway still writes to {path.name}; if that stays so, restart the gateways")
            cursor = cursors.get(path.name, Cursor())
            if cursor.error is None and next(_sound(path, cursor.offset), None) is not None:
                raise Postponed(f"{path.name} is not in the journal yet")
            n_unreadable += cursor.offset != path.stat().st_size
        self._journal.sync()
        for path in old:
            path.unlink(missing_ok=True)
        sync(self._folder)
        with self._journal.write() as session:
            session.connection().execute(
                delete(SegmentRow).where(col(SegmentRow.name).in_([path.name for path in old]))
            )
        for path in old:
            cursors.pop(path.name, None)
        n_aside = sum(_without(path, is_erased) for path in sorted(aside_of(self._folder).glob("*.seg")))
        return len(old), n_unreadable + n_aside

    def remove_aside(self, horizon: float) -> int:
        """Remove the files of `aside` that were written last before `horizon`. Returns how many."""
        old = [path for path in aside_of(self._folder).glob("*.seg") if path.stat().st_mtime < horizon]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def _is_over(self, path: Path, now: float) -> bool:
        """True if nobody writes to the segment any more, and nothing in it is still to be read."""
        try:
            status = path.stat()
            if now - status.st_mtime < GRACE or is_held(path):  # a gateway still writes to it
                return False
            cursor = self._known().get(path.name, Cursor())
            if cursor.error is None and cursor.offset != status.st_size:
                if next(read(path, cursor.offset), None) is not None:
                    return False  # the ingester has not come so far
                self.mark_damaged(path.name, f"its writer ended in the middle of a record, at byte {cursor.offset}")
        except (FileNotFoundError, SegmentError):
            return False
        return True

    def _known(self) -> dict[str, Cursor]:
        if self._cursors is None:
            with self._journal.read() as session:
                self._cursors = {row.name: Cursor(row.offset, row.error) for row in session.scalars(select(SegmentRow))}
        return self._cursors

    def _listed(self) -> list[str]:
        """The segments' names, oldest first. The folder is read only if it has changed."""
        changed_at = self._folder.stat().st_mtime_ns if self._folder.exists() else -1
        if changed_at != self._changed_at or self._listed_at - changed_at / 1e9 < SAME_TICK:
            self._changed_at, self._listed_at = changed_at, time.time()
            self._names = sorted(path.name for path in self._folder.glob("*.seg"))
        return self._names


_MOVE = text(
    'INSERT INTO segment (name, "offset") VALUES (:name, :offset) '
    'ON CONFLICT (name) DO UPDATE SET "offset" = excluded."offset", error = NULL'
)


def _sound(path: Path, offset: int = 0) -> Iterator[tuple[Record | None, int]]:
    """The records of a segment from `offset` on, up to where it is damaged."""
    try:
        yield from read(path, offset)
    except (FileNotFoundError, SegmentError):
        return


def _without(path: Path, is_erased: Callable[[Record], bool]) -> int:
    """Rewrite a file of `aside` without erased and without unreadable records. Returns how many of the latter."""
    kept, place, n_kept, n_unreadable = path.with_suffix(".kept"), 0, 0, 0
    kept.unlink(missing_ok=True)
    for record, behind in _sound(path):
        if record is None:
            n_unreadable += 1
        elif not is_erased(record):
            copy_frame(path, place, kept)
            n_kept += 1
        place = behind
    n_unreadable += place != path.stat().st_size
    if n_kept:
        kept.replace(path)
    else:
        path.unlink()
    return n_unreadable


def _size(path: Path) -> int | None:
    """None if the file is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
