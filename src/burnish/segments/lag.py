"""How far the journal is behind the segments, from the files and the journal's cursors."""

from contextlib import suppress
from pathlib import Path

from sqlalchemy import select
from sqlmodel import Session

from burnish.errors import SegmentError
from burnish.journal.tables import SegmentRow
from burnish.segments.file import read
from burnish.segments.frames import ended_at

LATE = 60.0
"""Seconds of lag that are an alarm."""
WAITING = "recorded turns wait {:,.0f} s for the journal; is the ingester running?"
"""The alarm, with the seconds."""


def lag(session: Session, folder: Path, now: float) -> float:
    """How long ago the oldest record ended that is not in the journal yet, in seconds. 0 if none waits.

    A damaged segment does not count: its rest will not be filed.
    """
    cursors = {row.name: row for row in session.scalars(select(SegmentRow))}
    oldest = now
    for path in folder.glob("*.seg"):
        cursor = cursors.get(path.name)
        offset = cursor.offset if cursor is not None else 0
        if (cursor is None or cursor.error is None) and _size(path) > offset:
            with suppress(SegmentError, FileNotFoundError):
                record = next((record for record, _ in read(path, offset) if record is not None), None)
                oldest = min(oldest, ended_at(record) if record is not None else now)
    return now - oldest


def _size(path: Path) -> int:
    """0 if the file is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
