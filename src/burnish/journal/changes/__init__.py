"""Whether anything was committed to the journal since the last look, by whatever process, and how idle loops rest.

An idle loop asks this instead of its queries. SQLite counts the commits of others (`PRAGMA data_version`), and inotify
says when to ask. PostgreSQL notifies (`NOTIFY`, sent with every commit that changed a row). Where neither can be had,
everything counts as changed.
"""

import asyncio
import math
import select
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from burnish.journal.changes.inotify import FolderWatch

CHANNEL = "burnish_journal"
LONGEST_REST = 10.0
"""Seconds after which an idle loop looks all the same: some work becomes due by the clock alone."""
NAP = 1.0
"""Seconds after which a resting loop looks whether it is to stop."""
AGAIN = 5.0
"""Seconds between two tries to listen."""
N_CHECKS = 2
"""How often the number is asked again after a hint: SQLite writes a commit a moment before it counts it."""
_CHANGED = "burnish_changed"
_OTHER = 2**32
"""Between the numbers that two connections give."""


class Changes:
    """One per journal handle, for one event loop or thread at a time. It has a connection of its own, made at the first
    call.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._counter: sqlite3.Connection | None = None
        self._watch: FolderWatch | None = None
        self._listener: Any = None
        self._socket = -1  # the listener's; a lost connection no longer knows it
        self._n = 0
        self._tried_at = -math.inf
        self._waiters: set[asyncio.Future[bool]] = set()

    def number(self) -> int:
        """A number that differs from that of an earlier call if anything was committed in between."""
        with self._lock:
            return self._count() if self._engine.dialect.name == "sqlite" else self._listen()

    def wait(self, seconds: float) -> bool:
        """True as soon as something may have been committed, False after `seconds`. For threads."""
        handle = self._handle()
        if handle is None:
            time.sleep(seconds)
            return False
        is_told = bool(select.select([handle], [], [], seconds)[0])
        self._drain()
        return is_told

    async def told(self, seconds: float) -> bool:
        """`wait` for an event loop."""
        handle, loop = self._handle(), asyncio.get_running_loop()
        if handle is None:
            await asyncio.sleep(seconds)
            return False
        waiter = loop.create_future()
        if not self._waiters:
            loop.add_reader(handle, self._tell)
        self._waiters.add(waiter)
        timer = loop.call_later(seconds, _settle, waiter, False)
        try:
            is_told: bool = await waiter
            return is_told
        finally:
            timer.cancel()
            self._waiters.discard(waiter)
            if not self._waiters and self._handle() == handle:  # not if the connection was lost meanwhile
                loop.remove_reader(handle)

    @property
    def is_told(self) -> bool:
        """True if something tells of changes. Otherwise they have to be looked for."""
        return self._handle() is not None

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __del__(self) -> None:
        self._drop()

    def _handle(self) -> int | None:
        if self._listener is not None:
            return self._socket
        return self._watch.fileno() if self._watch is not None else None

    def _drain(self) -> None:
        if self._watch is not None:
            self._watch.drain()
        else:
            self.number()  # takes the notifications in

    def _tell(self) -> None:
        self._drain()
        for waiter in self._waiters:
            _settle(waiter, True)

    def _count(self) -> int:
        try:
            if self._counter is None:
                file = self._engine.url.database or ""
                self._counter = sqlite3.connect(
                    f"file:{file}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
                )
                self._n += _OTHER
                with suppress(OSError):
                    self._watch = FolderWatch(Path(file).absolute().parent)
            return self._n + int(self._counter.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            self._drop()
            self._n += _OTHER
            return self._n

    def _listen(self) -> int:
        import psycopg  # a learner on a machine of its own has no PostgreSQL driver

        try:
            if self._listener is None:
                self._n += 1  # what came before it is not known
                if time.monotonic() < self._tried_at + AGAIN:
                    return self._n
                self._tried_at = time.monotonic()
                pooled = self._engine.raw_connection()
                self._listener = pooled.driver_connection
                pooled.detach()
                self._listener.rollback()
                self._listener.autocommit = True
                self._listener.execute(f"LISTEN {CHANNEL}")
                self._socket = self._listener.fileno()
            self._n += any([True for _ in self._listener.notifies(timeout=0)])
        except (SQLAlchemyError, psycopg.Error, OSError):
            self._drop()
            self._n += 1
        return self._n

    def _drop(self) -> None:
        if self._waiters and (handle := self._handle()) is not None:
            with suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(handle)
        for waiter in self._waiters:
            _settle(waiter, True)
        self._waiters.clear()
        for each in (self._counter, self._listener, self._watch):
            if each is not None:
                with suppress(Exception):
                    each.close()
        self._counter = self._listener = self._watch = None


class Rest:
    """One idle loop's rest: from a look that found nothing until the next one is worthwhile."""

    def __init__(self, changes: Changes, longest: float = LONGEST_REST) -> None:
        self._changes = changes
        self._longest = longest
        self._seen = 0
        self._until = 0.0
        self._n_checks = 0

    def begin(self) -> None:
        """Call before each look. What is committed during the look is seen by the next one."""
        self._seen = self._changes.number()
        self._until = time.monotonic() + self._longest

    def is_over(self, due: float = math.inf) -> bool:
        """True if something was committed, or `due` (seconds since the epoch) has come, or the rest was long."""
        return time.monotonic() >= self._until or time.time() >= due or self._changes.number() != self._seen

    def wait(self, is_stopping: Callable[[], bool], interval: float, due: float = math.inf) -> None:
        """Return when the rest is over, or at `is_stopping()`. Looks every `interval` seconds if nothing tells."""
        while not is_stopping() and not self.is_over(due):
            if self._has_hint() or not self._changes.is_told:
                time.sleep(interval)
            elif self._changes.wait(self._left(due)):
                self._n_checks = N_CHECKS

    async def wait_async(self, is_stopping: Callable[[], bool], interval: float, due: Callable[[], float]) -> None:
        """`wait` for an event loop. `due` may change meanwhile."""
        while not is_stopping() and not self.is_over(due()):
            await self.nap(interval, self._left(due()))

    async def nap(self, interval: float, seconds: float) -> None:
        """Return at a hint or after `seconds`. After `interval` if nothing tells of changes, or just after a hint."""
        if self._has_hint() or not self._changes.is_told:
            await asyncio.sleep(interval)
        elif await self._changes.told(seconds):
            self._n_checks = N_CHECKS

    def _has_hint(self) -> bool:
        self._n_checks = max(0, self._n_checks - 1)
        return self._n_checks > 0

    def _left(self, due: float) -> float:
        left = min(self._until - time.monotonic(), due - time.time(), NAP)
        return max(0.001, left)


def announce(engine: Engine) -> None:
    """Let every commit that changed a row notify the listeners. For PostgreSQL."""

    @event.listens_for(engine, "after_cursor_execute")
    def note(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if cursor.rowcount and not statement.lstrip()[:6].upper().startswith(("SELECT", "NOTIFY", "SET ", "SHOW ")):
            connection.info[_CHANGED] = True

    @event.listens_for(engine, "rollback")
    def forget(connection: Connection) -> None:
        if not connection.invalidated:  # a lost connection has nothing to tell, and asking it would be another error
            connection.info.pop(_CHANGED, None)

    @event.listens_for(engine, "commit")
    def tell(connection: Connection) -> None:
        if connection.info.pop(_CHANGED, None):
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


def _settle(waiter: "asyncio.Future[bool]", is_told: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_told)
