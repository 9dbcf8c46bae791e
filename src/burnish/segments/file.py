"""Segment files: the gateway writes each record with one `write()` before the client sees the end of its reply.

Append-only: a written frame (src/burnish/segments/frames.py) never changes. A torn last frame (a process killed while
it wrote) ends the file and harms nothing before it. If the disk is full, the preallocated reserve is given back to the
file system and used. After that `append` reports the loss, and the caller serves on unrecorded.

If a long text begins like an earlier one of the same file, only the rest is written, with the place of the shared
beginning. The length is that of what is written. The checksum is that of the whole frame, so a reader assembles the
frame and checks all of it. A shared beginning always lies in a frame that was written whole, so one look back is
enough.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from isal.isal_zlib import crc32

from burnish.errors import SegmentError
from burnish.files import hold, instance, is_held, replace_text, sync
from burnish.logs import told
from burnish.segments.frames import COUNTS, HEADER, MAGIC, Record, decode, pieces
from burnish.segments.prefixes import STEP, Mark, Place, Prefixes, marks_of, n_alike

log = structlog.get_logger(__name__)
SHARED = b"BRN2"
BUFFER = 128 * 1024
"""Bytes that are read at a time."""
MAX_AGE = 600.0
"""Seconds after which a file that holds something is left for a new one, so that it can be removed."""
_STAMP = 20  # digits of a file name's time, in nanoseconds
_ASKED = ".new-files"
_TEXT = 2  # the text's place among a frame's pieces, after header and counts
_SHARE = struct.Struct("<QI")  # the place of the shared beginning in this file, and its length
_MOST_ANEW = 0.25  # a larger rest is written as a whole text, so that later ones can share with it


class SegmentWriter:
    """One process's own segment files. A new file begins at `max_bytes` and at every start.

    The file that it writes to is locked. So the ingester knows which files have lost their writer, even by `kill -9`.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int = 64 * 2**20, reserve_bytes: int = 0, fsync: bool = False
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._fsync = fsync
        folder.mkdir(parents=True, exist_ok=True)
        if fsync:
            sync(folder.parent)
        _remove_reserves(folder)
        self._reserve = folder / f".reserve-{instance()}" if reserve_bytes else None
        self._reserve_handle = -1
        if self._reserve is not None:
            self._reserve_handle = hold(self._reserve)
            os.posix_fallocate(self._reserve_handle, 0, reserve_bytes)
        self._serial = 0
        self._opened_at = 0.0
        self._handle = -1
        self._size = 0
        self._found = bytearray()  # kept, because clearing so many bytes each time costs as much as reading them
        self._read_flags = os.RWF_NOWAIT  # pages that have left memory are not waited for
        self.n_lost = 0
        self._has_unflushed = False
        self._left: list[int] = []
        self._open()

    def append(self, record: Record) -> bool:
        """Write one record. False if the disk has no room even after the reserve (`n_lost` counts those)."""
        return self.write(pieces(record))

    def write(self, frame: list[bytes]) -> bool:
        """The same for an encoded frame."""
        length = sum(map(len, frame))
        if self._size and self._size + length > self._max_bytes:
            self._roll()
        marks: list[Mark] = []
        if length > STEP and len(frame) > _TEXT and len(text := frame[_TEXT]) >= STEP:
            marks = marks_of(text)
            if (n_shared := self._n_shared(text, place := self._prefixes.find(marks))) and place is not None:
                marks = []
                frame = _sharing(frame, Place(place.offset, n_shared))
                length = sum(map(len, frame))
        if self._write(frame, length) or (self._release_reserve() and self._write(frame, length)):
            if marks:
                before = self._size - length + HEADER.size + COUNTS.size
                self._prefixes.add(marks, Place(before, len(frame[_TEXT])))
            self._has_unflushed = self._fsync
            return True
        self.n_lost += 1
        return False

    def renew(self) -> None:
        """Begin a new file if this one holds something and is old, or older than `ask_for_new_files`."""
        if self._size and self._opened_at < max(time.time() - MAX_AGE, asked_for_new_files(self._folder)):
            self._roll()

    def unflushed(self) -> list[int]:
        """Handles of the files with records that may not be on the disk yet. The caller gives them to `flush`."""
        handles, self._left = self._left, []
        if self._has_unflushed:
            handles.append(os.dup(self._handle))
            self._has_unflushed = False
        return handles

    def close(self) -> None:
        flush(self.unflushed())
        os.close(self._handle)
        self._release_reserve()

    def _open(self) -> None:
        name = f"{time.time_ns():0{_STAMP}d}-{instance()}-{self._serial}.seg"
        self._opened_at = created_at(Path(name))
        self._handle = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        with suppress(OSError):  # a file system without locks: the segment is then kept for ever
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._fsync:  # the file's name too must be on the disk, or a power failure takes the file with its records
            sync(self._folder)
        self._serial += 1
        self._size = 0
        self._prefixes = Prefixes()

    def _roll(self) -> None:
        """Begin a new file. If none can be opened, the old one grows on."""
        old, has_unflushed = self._handle, self._has_unflushed
        try:
            self._open()
        except OSError:
            return
        if has_unflushed:
            self._left.append(old)
            self._has_unflushed = False
        else:
            os.close(old)

    def _write(self, frame: list[bytes], length: int) -> bool:
        try:
            written = os.writev(self._handle, frame)
        except OSError:
            written = 0
        if written == length:
            self._size += written
            return True
        if written:  # a torn frame would hide frames that are appended after it
            os.ftruncate(self._handle, self._size)
        return False

    def _n_shared(self, text: bytes, place: Place | None) -> int:
        """How many bytes of `text` the text at `place` already holds at its beginning. 0 if too few to share."""
        if place is None or len(text) - place.length > len(text) * _MOST_ANEW:
            return 0
        n_wanted = min(place.length, len(text))
        if n_wanted > len(self._found):
            self._found = bytearray(2 * n_wanted)
        found = memoryview(self._found)[:n_wanted]
        try:
            n_read = os.preadv(self._handle, [found], place.offset, self._read_flags)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a file system that cannot say what it holds in memory
                self._read_flags = 0
            return 0
        n_shared = n_alike(text, found) if n_read == n_wanted else 0
        return n_shared if len(text) - n_shared <= len(text) * _MOST_ANEW else 0

    def _release_reserve(self) -> bool:
        if self._reserve is None or not self._reserve.exists():
            return False
        self._reserve.unlink()
        os.close(self._reserve_handle)
        return True


def flush(handles: Sequence[int]) -> None:
    """Wait until what was written to `handles` is on the disk, and close them. Any thread may do this. Raises OSError
    if the disk fails.
    """
    failed: OSError | None = None
    for handle in handles:
        try:
            os.fdatasync(handle)
        except OSError as error:
            failed = error
        finally:
            os.close(handle)
    if failed is not None:
        raise failed


def _remove_reserves(folder: Path) -> None:
    """Remove the reserves of processes that were killed. One that was just made may not be locked yet."""
    for left in folder.glob(".reserve-*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 60.0 and not is_held(left):
                left.unlink()


def _sharing(frame: list[bytes], shared: Place) -> list[bytes]:
    """The same frame without the beginning of its text, which lies at `shared`."""
    header, counts, text, *rest = frame
    _, length, checksum = HEADER.unpack(header)
    header = HEADER.pack(SHARED, length - shared.length + _SHARE.size, checksum)
    return [header, _SHARE.pack(*shared), counts, text[shared.length :], *rest]


def _put_together(payload: bytes, handle: int, before: int) -> bytes:
    """The payload as it would be without sharing. Unchanged if no shared text is named."""
    start = _SHARE.size + COUNTS.size
    if len(payload) < start or sum(share := _SHARE.unpack_from(payload)) > before:
        return payload
    offset, length = share
    return b"".join((payload[_SHARE.size : start], os.pread(handle, length, offset), payload[start:]))


def read(path: Path, offset: int = 0) -> Iterator[tuple[Record | None, int]]:
    """The records from `offset` on, each with the offset after it. Stops before an incomplete last frame.

    None stands for a sound frame whose text no parser here takes, because its client nested it too deep, for example.
    Raises SegmentError at a complete frame with the wrong magic or checksum.
    """
    with path.open("rb", buffering=BUFFER) as handle:
        handle.seek(offset)
        while len(header := handle.read(HEADER.size)) == HEADER.size:
            magic, length, checksum = HEADER.unpack(header)
            if magic not in (MAGIC, SHARED):
                raise SegmentError(f"{path.name} at {offset}: expected a frame, got {header[:4]!r}")
            payload = handle.read(length)
            if len(payload) < length:
                return
            if magic == SHARED:
                payload = _put_together(payload, handle.fileno(), offset)
            if crc32(payload) != checksum:
                raise SegmentError(f"{path.name} at {offset}: checksum of a {length}-byte frame does not match")
            offset += HEADER.size + length
            record = None
            try:
                record = decode(payload)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error) as error:
                log.error("a record cannot be read", segment=path.name, error=told(error))
            yield record, offset


def created_at(path: Path) -> float:
    """When the file began, by its name. 0 if the name does not say."""
    stamp = path.name.partition("-")[0]
    return int(stamp) / 1e9 if len(stamp) == _STAMP and stamp.isdecimal() else 0.0


def ask_for_new_files(folder: Path) -> None:
    """Ask all writers in `folder` to leave the files that they write to now. They look twice a second."""
    replace_text(folder / _ASKED, repr(time.time()), is_durable=False)


def asked_for_new_files(folder: Path) -> float:
    """When that was asked last, 0 if never. Files that began earlier are left by their writers."""
    try:
        return float((folder / _ASKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0


def aside_of(folder: Path) -> Path:
    """Where records and segments of `folder` are kept that cannot be read."""
    return folder / "aside"


def copy_frame(path: Path, offset: int, target: Path) -> None:
    """Append the frame at `offset` to `target`, which need not exist, as a frame of its own. Durable on return."""
    with path.open("rb") as source:
        source.seek(offset)
        magic, length, checksum = HEADER.unpack(source.read(HEADER.size))
        payload = source.read(length)
        if magic == SHARED:
            payload = _put_together(payload, source.fileno(), offset)
    target.parent.mkdir(exist_ok=True)
    with target.open("ab") as copy:
        copy.write(HEADER.pack(MAGIC, len(payload), checksum) + payload)
        copy.flush()
        os.fsync(copy.fileno())
    sync(target.parent)
