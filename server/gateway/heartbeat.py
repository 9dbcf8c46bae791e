"""How many requests are under way on each version, told to the swapper through one small file per gateway process.

The file holds the generation of the serving table that the process has seen: once every gateway reports at least the
generation that moved an alias, and no request on the old version, that version can be unloaded. Requests are counted in
the same step that reads the table, so that none slips between the two numbers. The file goes away at a clean end.
"""

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

import structlog

from burnish.files import Watched, replace_text
from burnish.in_flight import path_of
from burnish.serving_table import Routes

INTERVAL = 0.5
log = structlog.get_logger(__name__)


class Heartbeat:
    """Counts the requests now being answered, by version name, and tells about them."""

    def __init__(self, run_dir: Path, routes: Watched[Routes]) -> None:
        self._path = path_of(run_dir, os.getpid())
        self._routes = routes
        self._counts: Counter[str] = Counter()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def hold(self, name: str) -> "RunningRequest":
        """Count one request on the version called `name` for the length of a `with` block."""
        return RunningRequest(self, name)

    def enter(self, name: str) -> None:
        """One request more."""
        self._counts[name] += 1
        self._is_idle.clear()

    def leave(self, name: str) -> None:
        """One request less."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
        if not self._counts:
            self._is_idle.set()

    async def wait_idle(self) -> None:
        """Return once no request is under way."""
        await self._is_idle.wait()

    def report(self) -> str:
        """The file's text: pid, time (`at`), generation seen, requests per version name."""
        generation = self._routes.current().generation
        return json.dumps(
            {"pid": os.getpid(), "at": time.time(), "generation": generation, "in_flight": dict(self._counts)}
        )

    async def publish_forever(self) -> None:
        """Write the file every half second; a disk that fails is reported and tried again, never felt by a request."""
        while True:
            try:
                await asyncio.to_thread(replace_text, self._path, self.report(), is_durable=False)
            except OSError as error:
                log.warning("cannot write the in-flight report", path=str(self._path), error=str(error))
            await asyncio.sleep(INTERVAL)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class RunningRequest:
    """One request on one version, while it is under way."""

    __slots__ = ("_heartbeat", "_name")

    def __init__(self, heartbeat: Heartbeat, name: str) -> None:
        self._heartbeat = heartbeat
        self._name = name

    def __enter__(self) -> None:
        self._heartbeat.enter(self._name)

    def __exit__(self, *_: object) -> None:
        self._heartbeat.leave(self._name)
