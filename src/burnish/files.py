"""Small files that several processes share: written aside and renamed, so that a reader sees the old or the new text.

If the disk takes only a part of the new text, the old one stays.
"""

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger(__name__)


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""The errors of parsing a file that was cut off or holds something else."""


LEAST_FREE = 2 * 2**30
"""Free bytes below which the disk is low."""
LOW_DISK = "{:.2f} GB are free below the state directory; replies go unrecorded once it is full"


def low_disk(folder: Path) -> float | None:
    """The free space below `folder` in GB if it is low, else None. It is an alarm, in the words of `LOW_DISK`."""
    free = shutil.disk_usage(folder).free
    return free / 2**30 if free < LEAST_FREE else None


def instance() -> str:
    """A new name for a part of this process, among all processes that share a folder. Process ids alone repeat in
    containers.
    """
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def hold(path: Path) -> int:
    """Create `path` and lock it. It stays locked until the returned handle is closed or the process dies. Raises
    BlockingIOError if another process holds it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError as error:  # a file system without locks
        log.warning("a file cannot be locked", path=str(path), error=str(error))
    return handle


def is_held(path: Path) -> bool:
    """True if a process holds `path`, or if nobody can say so. False if the file is missing."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def replace_text(path: Path, text: str, *, mode: int = 0o644, is_durable: bool = True) -> None:
    """Make `text` the content of `path` in one rename, durable on return by default. Creates the parent directory.

    Raises OSError if the disk does not take all of `text`. The old content then stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{instance()}.tmp")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            _write_all(handle, text.encode(), aside)
            if is_durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def keep_text(path: Path, text: str) -> None:
    """Keep `text`, which can be made again, for the next start. If the disk does not take it, a warning says so."""
    try:
        replace_text(path, text)
    except OSError as error:
        log.warning("cannot keep what the next start would need again", path=str(path), error=str(error))


def write_privately() -> None:
    """What this process writes from now on is its user's alone: conversations, keys, weights."""
    os.umask(0o077)


def make_private(folder: Path, ours: Iterable[str]) -> None:
    """Take `folder`, and what is called like one of the globs `ours` in it, from group and others.

    A folder that is private already has been through this, so only its own mode is read. Raises OSError.
    """
    if not folder.stat().st_mode & 0o077:
        return
    for pattern in ours:
        for found in folder.glob(pattern):
            for path in (found, *found.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)
    folder.chmod(0o700)


def _write_all(handle: int, data: bytes, path: Path) -> None:
    """Write every byte: on a nearly full disk, one `write` takes a part of them and reports no error."""
    rest = memoryview(data)
    while rest:
        n_written = os.write(handle, rest)
        if not n_written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        rest = rest[n_written:]


def sync(path: Path) -> None:
    """Wait until the content of `path` is on the disk. Does nothing if the file is gone."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """The JSON value in `path`. None if the file is missing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


class Watched(Generic[T]):
    """A parsed file that is read again only after it was replaced. `current` costs one stat at most every `max_age`
    seconds.

    If a replaced file cannot be parsed, the value before stays and the log says so. Without a value before, `current`
    raises.
    """

    def __init__(self, path: Path, parse: Callable[[Any], T], absent: T, max_age: float = 0.0) -> None:
        self._path = path
        self._parse = parse
        self._value: T = absent
        self._absent = absent
        self._stamp: tuple[int, int] | None = None
        self._max_age = max_age
        self._fresh_until = 0.0

    def current(self) -> T:
        if self._max_age:
            now = time.monotonic()
            if now < self._fresh_until:
                return self._value
            self._fresh_until = now + self._max_age
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._stamp = None
            self._value = self._absent
            return self._value
        stamp = (status.st_ino, status.st_mtime_ns)
        if stamp != self._stamp:
            try:
                self._value = self._parse(json.loads(self._path.read_text(encoding="utf-8")))
            except UNREADABLE as error:
                if self._stamp is None:
                    raise
                log.error("a file cannot be read; what it said before stands", path=str(self._path), error=repr(error))
            self._stamp = stamp
        return self._value
