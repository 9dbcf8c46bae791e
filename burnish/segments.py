"""Segment files: what the gateway writes in one `write()` per record, before the client sees the end of its reply.

Append-only; a frame once written never changes. A frame is `magic, payload length, CRC-32` and the payload: a JSON head and
the token arrays in binary. A torn last frame (a process killed in mid-write) ends the file and harms nothing before it.
When the disk is full the preallocated reserve is given back to the file system and used; after that `append` reports the
loss, and the caller goes on serving unrecorded.
"""

import json
import os
import struct
import time
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from burnish.errors import SegmentError
from burnish.records import Feedback, FeedbackSource, Interaction, Sampling

MAGIC = b"BRN1"
_HEADER = struct.Struct("<4sII")
_COUNTS = struct.Struct("<IIII")
Record = Interaction | Feedback


class Begun:
    """The part of an interaction's record that is known before the engine answers, as JSON text.

    Messages and tools may be given as JSON text (msgspec.Raw): a long conversation is not taken apart to be put together again.
    """

    __slots__ = ("text",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        assert fields.keys() == _BEGUN, f"expected {sorted(_BEGUN)}"
        self.text = _to_json({"kind": "interaction", **fields})[:-1]

    def finished(self, rest: Mapping[str, Any], *arrays: "array[Any]") -> list[bytes]:
        """The frame, in pieces: with what the answer brought, and the arrays of prompt ids, token ids and log-probs."""
        assert rest.keys() == _RESULT, f"expected {sorted(_RESULT)}"
        return _frame([self.text, b",", _to_json(rest)[1:]], arrays)


def encode(record: Record) -> bytes:
    """One frame, whole."""
    return b"".join(_pieces(record))


def _pieces(record: Record) -> list[bytes]:
    if isinstance(record, Feedback):
        return _frame([_to_json(asdict(record) | {"kind": "feedback"})], ())
    begun = Begun({name: getattr(record, name) for name in _BEGUN})
    rest = {name: getattr(record, name) for name in _RESULT}
    return begun.finished(rest, record.prompt_ids, record.token_ids, record.logprobs)


def _frame(head: list[bytes], arrays: "Sequence[array[Any]]") -> list[bytes]:
    """Magic, length, checksum, then the payload: array lengths before the JSON head, the arrays behind it."""
    counts = [len(values) for values in arrays] or [0, 0, 0]
    parts = [_COUNTS.pack(sum(map(len, head)), *counts), *head, *(values.tobytes() for values in arrays)]
    length = checksum = 0
    for part in parts:
        length += len(part)
        checksum = zlib.crc32(part, checksum)
    return [_HEADER.pack(MAGIC, length, checksum), *parts]


def _to_json(tree: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except UnicodeEncodeError:  # half of a surrogate pair, which only the slower way can write
        plain = {name: asdict(value) if isinstance(value, Sampling) else value for name, value in tree.items()}
        plain = {name: json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else value for name, value in plain.items()}
        return json.dumps(plain).encode()


def decode(payload: bytes) -> Record:
    """The record in one frame's payload."""
    n_head, n_prompt, n_tokens, n_logprobs = _COUNTS.unpack_from(payload)
    at = _COUNTS.size
    tree = json.loads(payload[at : at + n_head].decode("utf-8", "surrogatepass"))
    at += n_head
    if tree.pop("kind") == "feedback":
        return Feedback(**tree | {"source": FeedbackSource(tree["source"])})
    arrays = []
    for code, count in (("i", n_prompt), ("i", n_tokens), ("f", n_logprobs)):
        values: array[Any] = array(code)
        values.frombytes(payload[at : at + 4 * count])
        at += 4 * count
        arrays.append(values)
    tree |= {"sampling": Sampling(**tree["sampling"]), "tools": tuple(tree["tools"])}
    return Interaction(**tree, prompt_ids=arrays[0], token_ids=arrays[1], logprobs=arrays[2])


_RESULT = frozenset({"interaction_id", "reply", "ended_at", "finish_reason", "choice", "is_aborted", "quarantine", "stop"})
_BEGUN = frozenset(Interaction.__dataclass_fields__) - _RESULT - {"prompt_ids", "token_ids", "logprobs"}


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
        return self.write(_pieces(record))

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
        while len(header := handle.read(_HEADER.size)) == _HEADER.size:
            magic, length, checksum = _HEADER.unpack(header)
            if magic != MAGIC:
                raise SegmentError(f"{path.name} at {offset}: expected a frame, got {header[:4]!r}")
            payload = handle.read(length)
            if len(payload) < length:
                return
            if zlib.crc32(payload) != checksum:
                raise SegmentError(f"{path.name} at {offset}: checksum of a {length}-byte frame does not match")
            offset += _HEADER.size + length
            yield decode(payload), offset
