"""The in-flight report: how many requests run on each version, in one small file per gateway process.

The file also holds the generation of the serving table that the process has seen. A version can be unloaded once every
gateway reports at least the generation that moved the alias, and no request on that version. Requests are counted in
the same step that reads the table, so none falls between the two numbers. The file goes away at a clean end. A lock
beside it says whether the process lives. Process ids say nothing across containers.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from burnish.files import Watched, hold, instance, replace_text
from burnish.in_flight import lock_of, path_of
from burnish.serving_table import Routes

INTERVAL = 0.5
REPEAT_SECONDS = 2.5
"""Seconds after which a report is written again that says the same. Within `STALE_SECONDS`, or readers would look for
the lock.
"""
log = structlog.get_logger(__name__)


class Heartbeat:
    """Counts the running requests by version name and reports them."""

    def __init__(self, run_dir: Path, routes: Watched[Routes]) -> None:
        self._path = path_of(run_dir, instance())
        run_dir.mkdir(parents=True, exist_ok=True)
        self._lock = hold(lock_of(self._path))
        self._routes = routes
        self._counts: dict[str, int] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def hold(self, name: str) -> "RunningRequest":
        """Count one request on the version called `name` for the length of a `with` block."""
        return RunningRequest(self, name)

    def enter(self, name: str) -> None:
        """Count one request more."""
        self._counts[name] = self._counts.get(name, 0) + 1
        self._is_idle.clear()

    def leave(self, name: str) -> None:
        """Count one request less."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
        if not self._counts:
            self._is_idle.set()

    async def wait_idle(self) -> None:
        """Return as soon as no request is running."""
        await self._is_idle.wait()

    def report(self) -> str:
        """The file's text: time (`at`), generation seen, requests per version name."""
        return json.dumps({"at": time.time(), **self._facts()})

    def _facts(self) -> dict[str, Any]:
        return {"generation": self._routes.current().generation, "in_flight": dict(self._counts)}

    async def publish_forever(self, at_each: Callable[[], None] = lambda: None) -> None:
        """Write the file, with the time (`at`), within half a second of every change, and do what is to be done as
        often. The first of several disk errors is logged, and the write is tried again; requests do not notice.
        """
        written, until, is_failing = None, 0.0, False
        while True:
            at_each()
            facts = self._facts()
            if facts != written or time.monotonic() >= until:
                try:
                    await asyncio.to_thread(replace_text, self._path, self.report(), is_durable=False)
                    written, until, is_failing = facts, time.monotonic() + REPEAT_SECONDS, False
                except OSError as error:
                    if not is_failing:
                        log.warning("cannot write the in-flight report", path=str(self._path), error=str(error))
                    is_failing = True
            await asyncio.sleep(INTERVAL)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        lock_of(self._path).unlink(missing_ok=True)
        os.close(self._lock)


class RunningRequest:
    """One running request on one version."""

    __slots__ = ("_heartbeat", "_name")

    def __init__(self, heartbeat: Heartbeat, name: str) -> None:
        self._heartbeat = heartbeat
        self._name = name

    def __enter__(self) -> None:
        self._heartbeat.enter(self._name)

    def __exit__(self, *_: object) -> None:
        self._heartbeat.leave(self._name)
