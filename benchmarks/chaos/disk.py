"""A disk as a power failure finds it, from the system calls that strace recorded.

Only what was flushed is certain: a file's content by fsync or fdatasync of the file, its name by fsync of its folder.
Of all else, any part may have reached the disk, in any order. A write without a place is taken to be at its file's
end. What a program changes through mapped memory is not seen; SQLite maps only what it can make anew. Files are kept in
memory.
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

CALLS = (
    *("openat", "write", "writev", "pwrite64", "pwritev", "ftruncate", "fsync", "fdatasync"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
"""The system calls to record."""
SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_LINE = re.compile(r"(?P<pid>\d+) +(?P<at>[\d.]+) (?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)")
_HANDLE = re.compile(r"(?:\d+|AT_FDCWD)<(?P<path>(?:[^>\\]|\\.)*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")


class Kind(StrEnum):
    OPEN = "open"
    WRITE = "write"
    TRUNCATE = "truncate"
    FLUSH = "flush"
    RENAME = "rename"
    UNLINK = "unlink"


@dataclass(frozen=True, slots=True)
class Event:
    """A system call that succeeded, at `at` seconds. `place` is where a write goes, None for a file's end; `size` is
    the new size. `began` is when the call began.
    """

    began: float
    at: float
    kind: Kind
    path: str
    data: bytes = b""
    place: int | None = None
    size: int = 0
    target: str = ""
    empties: bool = False


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The calls of one log of `strace -f -ttt -y -xx`, as they ended."""
    begun: dict[str, tuple[float, str]] = {}
    for line in lines:
        if (found := _LINE.match(line)) is None:
            continue
        pid, at, rest = found["pid"], float(found["at"]), found["rest"].rstrip("\n")
        if rest.endswith(_UNFINISHED):
            begun[pid] = (at, rest.removesuffix(_UNFINISHED))
            continue
        began = at
        if (resumed := _RESUMED.match(rest)) is not None and pid in begun:
            began, head = begun.pop(pid)
            rest = head + rest[resumed.end() :]
        if (call := _CALL.match(rest)) is not None and int(call["result"]) >= 0:
            yield from _event(began, at, call["name"], call["args"], int(call["result"]))


def _event(began: float, at: float, name: str, args: str, result: int) -> Iterator[Event]:
    texts = [bytes.fromhex(each.replace("\\x", "")) for each in _TEXT.findall(args)]
    handle = _HANDLE.match(args)
    path = _path(handle["path"]) if handle else ""
    if name == "openat":
        if "O_CREAT" in args or "O_TRUNC" in args:
            yield Event(began, at, Kind.OPEN, _joined(path, texts[0]), empties="O_TRUNC" in args)
    elif name in ("write", "writev"):
        yield Event(began, at, Kind.WRITE, path, b"".join(texts)[:result])
    elif name in ("pwrite64", "pwritev"):
        yield Event(began, at, Kind.WRITE, path, b"".join(texts)[:result], int(args.rsplit(", ", 1)[1]))
    elif name == "ftruncate":
        yield Event(began, at, Kind.TRUNCATE, path, size=int(args.rsplit(", ", 1)[1]))
    elif name in ("fsync", "fdatasync"):
        yield Event(began, at, Kind.FLUSH, path)
    elif name.startswith("rename"):
        folders = [_path(each["path"]) for each in _HANDLE.finditer(args)] or [""] * 2
        yield Event(began, at, Kind.RENAME, _joined(folders[0], texts[0]), target=_joined(folders[-1], texts[1]))
    elif "AT_REMOVEDIR" not in args:
        yield Event(began, at, Kind.UNLINK, _joined(path, texts[0]))


def _path(shown: str) -> str:
    text = bytes.fromhex(shown.replace("\\x", "")).decode() if "\\x" in shown else shown
    return text.removesuffix(" (deleted)").removesuffix("(deleted)")


def _joined(folder: str, name: bytes) -> str:
    return str(Path(folder or "/") / name.decode())


@dataclass
class _File:
    """Its content as programs see it, the content that is certain, and the changes since."""

    now: bytearray = field(default_factory=bytearray)
    certain: bytes = b""
    since: list[tuple[int, bytes] | int] = field(default_factory=list)
    """Writes (place, bytes) and new sizes."""

    def write(self, place: int | None, data: bytes) -> None:
        place = len(self.now) if place is None else place
        _put(self.now, place, data)
        self.since.append((place, data))

    def resize(self, size: int) -> None:
        _resize(self.now, size)
        self.since.append(size)

    def flush(self) -> None:
        self.certain, self.since = bytes(self.now), []

    def after(self, rng: random.Random, share: float) -> bytes:
        """The content after a power failure. Each change since the last flush is there with the probability `share`,
        and of a write perhaps only some sectors.
        """
        found = bytearray(self.certain)
        for change in self.since:
            if isinstance(change, int):
                if rng.random() < share:
                    _resize(found, change)
                continue
            place, data = change
            if share >= 1.0:
                _put(found, place, data)
                continue
            for start, end in _sectors(place, len(data)):
                if rng.random() < share:
                    _put(found, place + start, data[start:end])
        return bytes(found)


class Disk:
    """The files below `root`. `before` is a copy of them from before the first call; they are certain."""

    def __init__(self, root: str, before: Path) -> None:
        self._root = root
        found = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
        self._names = {
            str(Path(root) / path.relative_to(before)): _File(bytearray(content), content)
            for path, content in found.items()
        }
        self._certain = dict(self._names)
        self._since: list[tuple[str, _File | None]] = []

    def take(self, event: Event) -> None:
        """One call."""
        if not event.path.startswith(self._root):
            return
        path = event.path
        match event.kind:
            case Kind.OPEN:
                if path not in self._names:
                    self._name(path, _File())
                elif event.empties:
                    self._names[path].resize(0)
            case Kind.WRITE if path in self._names:
                self._names[path].write(event.place, event.data)
            case Kind.TRUNCATE if path in self._names:
                self._names[path].resize(event.size)
            case Kind.FLUSH if path in self._names:
                self._names[path].flush()
            case Kind.FLUSH:
                self._flush_folder(path)
            case Kind.RENAME if path in self._names:
                self._name(event.target, self._names[path])
                self._name(path, None)
            case Kind.UNLINK if path in self._names:
                self._name(path, None)
            case _:
                pass

    def leave(self, target: Path, rng: random.Random, share: float) -> None:
        """Write the files below `target` as a power failure leaves them. A change of a name that was not flushed is
        there with the probability `share`; a later one of the same folder is not there without the earlier ones.
        """
        names = dict(self._certain)
        stopped: set[str] = set()
        for path, file in self._since:
            folder = path.rpartition("/")[0]
            if folder in stopped or rng.random() >= share:
                stopped.add(folder)
            else:
                _set(names, path, file)
        for path, file in names.items():
            place = target / Path(path).relative_to(self._root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.after(rng, share))

    def _name(self, path: str, file: _File | None) -> None:
        _set(self._names, path, file)
        self._since.append((path, file))

    def _flush_folder(self, folder: str) -> None:
        later = []
        for path, file in self._since:
            if path.rpartition("/")[0] == folder:
                _set(self._certain, path, file)
            else:
                later.append((path, file))
        self._since = later


def _set(names: dict[str, _File], path: str, file: _File | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def _put(content: bytearray, place: int, data: bytes) -> None:
    if len(content) < place:
        content.extend(bytes(place - len(content)))
    content[place : place + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _sectors(place: int, length: int) -> Iterator[tuple[int, int]]:
    """Beginning and end, within a write, of each sector that it touches."""
    start = 0
    while start < length:
        end = min(length, start + SECTOR - (place + start) % SECTOR)
        yield start, end
        start = end
