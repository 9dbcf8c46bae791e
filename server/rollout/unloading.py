"""Unloading: a version without an alias leaves the engines once no gateway has a request on it.

Nothing here waits. Each round looks at the gateways' reports and does what has become possible. The serving table says
what has to go. The first round finds what a dead swapper left on the engines.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
from sqlalchemy import select
from sqlmodel import col

from burnish import serving_table
from burnish.adapters.serving import publish
from burnish.errors import EngineError, EngineUnavailable
from burnish.in_flight import is_drained
from burnish.journal import Journal
from burnish.journal.tables import AgentRow
from burnish.records import VersionName
from burnish.server.rollout.engine.engine import Engine

PATIENCE = 10.0
"""Seconds that a version off the table waits for requests that were admitted in that moment."""
log = structlog.get_logger()


class Unloader:
    """One per swapper. A version goes in two steps: off the table once it is idle, off the engines once every gateway
    has seen that.
    """

    def __init__(self, journal: Journal, engines: Sequence[Engine], file: Path) -> None:
        self._journal = journal
        self._engines = engines
        self._file = file
        self._idle: dict[VersionName, int] = {}  # named by no alias, with the generation since which that is so
        # off the table: the generation, and when waiting for it ends
        self._off: dict[VersionName, tuple[int, float]] = {}
        self._has_swept = False

    @property
    def is_busy(self) -> bool:
        """True while a version waits for its last request, which no journal tells of."""
        return bool(self._idle or self._off)

    async def run_once(self, present: serving_table.Routes) -> None:
        """Take idle versions off the table, and off the engines those that every gateway has seen off the table."""
        if not self._has_swept:
            await self._sweep(present)
        back = {name for name in self._off if _has(present, name)}  # promoted or wanted again in the meantime
        idle = {
            VersionName(route.name, number)
            for route in present.agents.values()
            for number in route.loaded
            if number not in route.named
        }
        self._idle = {name: self._idle.get(name, present.generation) for name in idle}
        for name, generation in self._idle.items():
            if self._is_drained(name, generation):
                after = publish.take_off(self._journal, self._file, name.agent, name.version)
                if after is not None:
                    self._off[name] = (after.generation, time.monotonic() + PATIENCE)
        for name, (generation, until) in list(self._off.items()):
            if name in back:
                del self._off[name]
            elif self._is_drained(name, generation):
                del self._off[name]
                await self.unload(name)
                log.info("unloaded", version=str(name))
            elif time.monotonic() > until and name.agent in present.agents:
                del self._off[name]
                publish.sync(self._journal, self._file, name.agent, also_loaded=name.version)

    def send_off(self, agent: str) -> None:
        """Take a whole agent off the table. Its versions follow once no request is on them, however long that takes."""
        left = publish.leave(self._file, agent)
        if left is not None:
            route, generation = left
            self._off |= {VersionName(agent, number): (generation, math.inf) for number in route.loaded}

    async def unload(self, name: VersionName) -> None:
        """Unload a version from every engine. An engine that refuses keeps it until its next start."""
        for engine in self._engines:
            try:
                await engine.unload(str(name))
            except EngineUnavailable:
                raise
            except EngineError as error:
                log.error("a version cannot be unloaded", version=str(name), engine=engine.url, error=str(error))

    async def _sweep(self, present: serving_table.Routes) -> None:
        """Find the versions that a dead swapper took off the table and not yet off the engines."""
        with self._journal.read() as session:
            ours = set(session.scalars(select(col(AgentRow.name))))
        for engine in self._engines:
            for model in await engine.models():
                name = VersionName.parse(model)
                if name is not None and name.agent in ours and not _has(present, name):
                    self._off[name] = (present.generation, math.inf)
        self._has_swept = True

    def _is_drained(self, name: VersionName, generation: int) -> bool:
        return is_drained(self._file.parent, str(name), generation)


def _has(present: serving_table.Routes, name: VersionName) -> bool:
    route = present.agents.get(name.agent)
    return route is not None and name.version in route.loaded
