"""Small files that several processes share: written aside, renamed over, so that a reader sees the old text or the new."""

import json
import os
import time
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def replace_text(path: Path, text: str, *, mode: int = 0o644, is_durable: bool = True) -> None:
    """Make `text` the content of `path` in one rename, durable on return unless told otherwise. Creates the parent directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(handle, text.encode())
        if is_durable:
            os.fsync(handle)
    finally:
        os.close(handle)
    aside.replace(path)


def sync(path: Path) -> None:
    """Wait until what is in `path` now is on the disk; nothing where it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """The JSON value in `path`, or None where the file is missing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


class Watched(Generic[T]):
    """A parsed file that is read again only when it has been replaced; `current` costs one stat, at most once in `max_age` s."""

    def __init__(self, path: Path, parse: Any, absent: T, max_age: float = 0.0) -> None:
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
            self._value = self._parse(json.loads(self._path.read_text(encoding="utf-8")))
            self._stamp = stamp
        return self._value
