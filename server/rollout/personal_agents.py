"""Personal agents on the engines: made at their user's first turn, loaded when wanted, unloaded when idle.

Version 1 of a personal agent is its parent's live version of that time under a name of its own (the same files,
hard-linked), or the base if the parent is at the base. Making one is safe to repeat: the next try takes the steps that
a crash left out.
"""

import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
from sqlmodel import Session

from burnish import serving_table
from burnish.adapters.files.store import MANIFEST, AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.versions import next_number
from burnish.adapters.serving import publish
from burnish.config import Personal
from burnish.journal import Journal
from burnish.journal.tables import AgentRow, VersionRow
from burnish.records import VersionName, VersionState
from burnish.server.rollout.unloading import Unloader

LOOK_SECONDS = 5.0
IDLE_SECONDS = 24.0 * 3600.0
"""Seconds without a turn after which a personal agent is unloaded."""
ORIGIN = "branch"
log = structlog.get_logger()


class PersonalAgents:
    """One per swapper. `load` brings a version to every engine or to none."""

    def __init__(
        self,
        journal: Journal,
        store: AdapterStore,
        file: Path,
        unloader: Unloader,
        load: Callable[[VersionName], Awaitable[None]],
        settings: Personal,
    ) -> None:
        self._journal = journal
        self._store = store
        self._file = file
        self._unloader = unloader
        self._load = load
        self._settings = settings
        self._next_look = 0.0

    async def wake(self, agent: str) -> None:
        """Put a personal agent on the table, and make it first if it is new. Raises AdapterError or EngineError."""
        present = serving_table.watch(self._file).current()
        with self._journal.read() as session:
            row = session.get(AgentRow, agent)
            if row is None or row.parent is None or agent in present.agents:
                return
            origin = _origin(session, row)
            live = lifecycle.alias(session, agent) or 0
        if origin is not None and not live:
            live = await self._branch(row, origin)
        elif live:
            self._store.verify(agent, live)
            await self._load(VersionName(agent, live))
        publish.sync(self._journal, self._file, agent, also_loaded=live or None)
        log.info("a personal agent is there", version=str(VersionName(agent, live)), parent=row.parent)
        self._make_room(agent)

    def unload_idle(self) -> None:
        """Unload the personal agents that nobody has used for `IDLE_SECONDS`. Looks now and then."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        for name, used_at in self._by_use():
            if used_at > time.time() - IDLE_SECONDS:
                break
            self._send_off(name, "idle")

    def _make_room(self, newest: str) -> None:
        by_use = [name for name, _ in self._by_use() if name != newest]
        for name in by_use[: max(0, len(by_use) + 1 - self._settings.max_agents)]:
            self._send_off(name, "others are used more")

    def _send_off(self, name: str, why: str) -> None:
        self._unloader.send_off(name)
        log.info("a personal agent leaves", agent=name, reason=why)

    def _by_use(self) -> list[tuple[str, float]]:
        """Personal agents on the table with their last use, the longest unused first."""
        agents = serving_table.watch(self._file).current().agents.values()
        with self._journal.read() as session:
            rows = [session.get_one(AgentRow, route.name) for route in agents if route.parent is not None]
        return sorted(((row.name, row.last_used_at or row.created_at) for row in rows), key=lambda found: found[1])

    async def _branch(self, row: AgentRow, origin: VersionName) -> int:
        """Version 1 of a new personal agent: first its row, then its files. It is live once the engines have it."""
        name = VersionName(row.name, 1)
        manifest = self._store.verify(origin.agent, origin.version)
        with self._journal.write() as session:
            if session.get(VersionRow, (name.agent, name.version)) is None:
                session.add(
                    VersionRow(
                        agent=name.agent,
                        version=name.version,
                        parent=origin.version,
                        parent_agent=origin.agent,
                        origin=ORIGIN,
                        digest=str(manifest["files"]["adapter_model.safetensors"]),
                        state=VersionState.CANDIDATE,
                        evidence={},
                        created_at=time.time(),
                    )
                )
        if not self._store.path(name.agent, name.version).exists():
            with self._store.aside(name.agent, name.version) as directory:
                _link(self._store.path(origin.agent, origin.version), directory)
                facts = {**manifest, "parent": origin.version, "parent_agent": origin.agent}
                self._store.publish(name.agent, name.version, directory, facts)
        await self._load(name)
        with self._journal.write() as session:
            lifecycle.promote(session, name.agent, 1, expected=0, actor="personal", reason=f"branched from {origin}")
        return 1


def _origin(session: Session, row: AgentRow) -> VersionName | None:
    """The parent's version from which a personal agent without versions of its own begins, or began. None for the
    base."""
    assert row.parent is not None
    first = session.get(VersionRow, (row.name, 1))
    if first is not None:
        is_unfinished = (
            first.origin == ORIGIN and first.state == VersionState.CANDIDATE and first.parent_agent is not None
        )
        return VersionName(first.parent_agent or "", first.parent) if is_unfinished else None
    is_new = next_number(session, row.name) == 1
    live = lifecycle.alias(session, row.parent) or 0
    return VersionName(row.parent, live) if is_new and live else None


def _link(source: Path, target: Path) -> None:
    """Hard-link or copy a version's files into another directory."""
    for file in source.iterdir():
        if file.name == MANIFEST:
            continue
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copyfile(file, target / file.name)
