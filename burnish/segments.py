"""Segment files: what the gateway writes in one `write()` per record, before the client sees the end of its reply.

Append-only; a frame (burnish/frames.py) once written never changes. A torn last frame (a process killed in mid-write) ends the
file and harms nothing before it. When the disk is full the preallocated reserve is given back to the file system and used; after
that `append` reports the loss, and the caller goes on serving unrecorded.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from isal.isal_zlib import crc32

from burnish.errors import SegmentError
from burnish.frames import HEADER, MAGIC, Record, decode, pieces


class SegmentWriter:
    """One process's own segment files. Not shared between processes; a new file begins at `max_bytes` and at every start."""

    def __init__(self, folder: Path, *, max_bytes: int = 64 * 2**20, reserve_bytes: int = 0, fsync: bool = False) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._fsync = fsync
        folder.mkdir(parents=True, exist_ok=True)
        self._reserve = folder / f".reserve-{os.getpid()}" if reserve_bytes else None
        if self._reserve is not None:
            with self._reserve.open("wb") as handle:
                os.posix_fallocate(handle.fileno(), 0, reserve_bytes)
        self._serial = 0
        self._handle = -1
        self._size = 0
        self.n_lost = 0
        self._open()

    def append(self, record: Record) -> bool:
        """Write one record; False where the disk has no room even after the reserve (`n_lost` counts those)."""
        return self.write(pieces(record))

    def write(self, frame: list[bytes]) -> bool:
        """The same for a frame that is there already."""
        length = sum(map(len, frame))
        if self._size and self._size + length > self._max_bytes:
            self._roll()
        if self._write(frame, length) or (self._release_reserve() and self._write(frame, length)):
            if self._fsync:
                os.fdatasync(self._handle)
            return True
        self.n_lost += 1
        return False

    def close(self) -> None:
        os.close(self._handle)
        if self._reserve is not None:
            self._reserve.unlink(missing_ok=True)

    def _open(self) -> None:
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._serial}.seg"
        self._handle = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._serial += 1
        self._size = 0

    def _roll(self) -> None:
        """Begin a new file; where none can be opened, the old one grows on."""
        old = self._handle
        try:
            self._open()
        except OSError:
            return
        os.close(old)

    def _write(self, frame: list[bytes], length: int) -> bool:
        try:
            written = os.writev(self._handle, frame)
        except OSError:
            written = 0
        if written == length:
            self._size += written
            return True
        if written:  # a torn frame would hide what is appended behind it
            os.ftruncate(self._handle, self._size)
        return False

    def _release_reserve(self) -> bool:
        if self._reserve is None or not self._reserve.exists():
            return False
        self._reserve.unlink()
        return True


def read(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """The records from `offset` on, each with the offset behind it. Stops quietly before an incomplete last frame.

    Raises SegmentError at a complete frame with the wrong magic or checksum.
    """
    with path.open("rb") as handle:
        handle.seek(offset)
        while len(header := handle.read(HEADER.size)) == HEADER.size:
            magic, length, checksum = HEADER.unpack(header)
            if magic != MAGIC:
                raise SegmentError(f"{path.name} at {offset}: expected a frame, got {header[:4]!r}")
            payload = handle.read(length)
            if len(payload) < length:
                return
            if crc32(payload) != checksum:
                raise SegmentError(f"{path.name} at {offset}: checksum of a {length}-byte frame does not match")
            offset += HEADER.size + length
            yield decode(payload), offset
