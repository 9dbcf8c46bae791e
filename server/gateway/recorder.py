"""Recording that cannot hurt serving: a record that the disk refuses is counted and reported, and the reply goes
out."""

import asyncio
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from burnish.config import Settings
from burnish.records import Interaction
from burnish.segments.file import SegmentWriter, flush
from burnish.segments.frames import Begun, Record, decode, encode, n_brackets, outline, pieces
from burnish.wire.redaction import redacted, unsaid

log = structlog.get_logger(__name__)
RESERVE_BYTES = 4 * 2**20
"""Preallocated space that recording falls back to on a full disk."""
MOST_BRACKETS = 2**15
"""In the head of a record that is looked through. One with more lists and objects is stored without its messages."""


class Unrecorded:
    """Takes the records of a turn that its client, its key or its user wants kept out of the journal."""

    def finish(self, begun: Begun, rest: Mapping[str, Any], *arrays: "array[Any]") -> bool:
        """Drop it."""
        return False

    def answered(self, begun: Begun, interaction_id: str, answer: bytes) -> bool:
        """Drop it."""
        return False


UNRECORDED = Unrecorded()


class Redacting:
    """Records turns without what looks like personal data or a secret (src/burnish/wire/redaction.py)."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def finish(self, begun: Begun, rest: Mapping[str, Any], *arrays: "array[Any]") -> bool:
        """As `Recorder.finish`."""
        return self._append(begun.finished(rest, *arrays))

    def answered(self, begun: Begun, interaction_id: str, answer: bytes) -> bool:
        """As `Recorder.answered`."""
        return self._append(begun.answered(interaction_id, time.time(), answer))

    def append(self, record: Interaction) -> bool:
        """As `Recorder.append`."""
        return self._recorder.append(redacted(record))

    def _append(self, frame: list[bytes]) -> bool:
        payload = b"".join(frame[1:])
        if n_brackets(payload) > MOST_BRACKETS:
            return self._recorder.append(unsaid(outline(payload)))
        record = decode(payload, remembers=False)
        clean = redacted(record)
        return self._recorder.write(frame) if clean is record else self._recorder.append(clean)


class Recorder:
    """This process's segment files."""

    def __init__(self, settings: Settings) -> None:
        self._writer = SegmentWriter(
            settings.segments_dir,
            reserve_bytes=RESERVE_BYTES,
            fsync=settings.journal.fsync,
        )
        self._is_durable = settings.journal.fsync
        self._n_flushed = 0
        self._flushing: asyncio.Task[None] | None = None
        self.n_recorded = 0
        self.n_lost = 0

    def append(self, record: Record) -> bool:
        """Write `record` before anybody hears of it. False if there was no room for it."""
        return self.write(pieces(record))

    def append_all(self, records: Sequence[Record]) -> bool:
        """Write `records` in one piece: all of them, or none."""
        return self.write([b"".join(map(encode, records))])

    def finish(self, begun: Begun, rest: Mapping[str, Any], *arrays: "array[Any]") -> bool:
        """The same for an interaction with a record that was begun while the engine worked."""
        return self.write(begun.finished(rest, *arrays))

    def answered(self, begun: Begun, interaction_id: str, answer: bytes) -> bool:
        """The same for a reply that came whole, with the engine's answer unchanged."""
        return self.write(begun.answered(interaction_id, time.time(), answer))

    def write(self, frame: list[bytes]) -> bool:
        """The same for a frame in pieces."""
        try:
            is_written = self._writer.write(frame)
        except OSError as error:
            log.warning("cannot write a segment", error=str(error))
            is_written = False
        if is_written:
            self.n_recorded += 1
        else:
            self.n_lost += 1
            if self.n_lost == 1 or self.n_lost % 1000 == 0:
                log.error("serving unrecorded: no room for segments", n_lost=self.n_lost)
        return is_written

    async def durable(self, since: int = 0) -> None:
        """Wait until what was written is on the disk, if `journal.fsync` is on and anything was written since
        `n_recorded` was `since`. One flush is for all that wait, and the event loop goes on meanwhile.
        """
        wanted = self.n_recorded
        while self._is_durable and wanted != since and self._n_flushed < wanted:
            if self._flushing is None:
                self._flushing = asyncio.create_task(self._flush())
            await asyncio.shield(self._flushing)

    async def _flush(self) -> None:
        n, handles = self.n_recorded, self._writer.unflushed()
        try:
            await asyncio.to_thread(flush, handles)
        except OSError as error:  # as for a full disk: the replies go out
            log.error("cannot flush a segment to the disk", error=str(error))
        finally:
            self._n_flushed, self._flushing = n, None

    def renew(self) -> None:
        """Leave a segment that is old, or that is wanted for an erasure. A disk error leaves things as they are."""
        self._writer.renew()

    def close(self) -> None:
        self._writer.close()
