"""The keeper: takes away the files of versions that nobody needs (adapters/keep.py), and finishes what a crash interrupted.

First the version's row says that its files are gone, in a transaction that has looked at every use once more; only then they go,
by a rename and then for good. A crash in between leaves a row without files or files under another name, and both are mended at the
next look. The row stays: its number is never given again, and the rows that it was trained on stay spent. A journal that is not the
store's own removes nothing.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from adapters import agents, audit
from adapters.binding import bind
from adapters.keep import Kept, Plan, Uses, plan
from adapters.store import AdapterStore
from adapters.versions import versions
from burnish import routes
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.tables import AliasRow, CanaryRow, LoadJob, StepRow, VersionRow
from burnish.records import StepOutcome, VersionName
from server.inflight import in_flight
from server.prepare import routes_file

log = structlog.get_logger()
FIRST_LOOK = 60.0
"""Seconds after the start: gateways have reported by then what they are answering."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed of one agent, or would be, and what stays; by number, each with the reason."""

    agent: str
    plan: Plan
    is_done: bool

    def as_dict(self) -> dict[str, Any]:
        """As the command line and the admin API show it."""
        return {"agent": self.agent, "dry_run": not self.is_done, "removed": self.plan.remove, "kept": self.plan.keep}


class Keeper:
    """One look at a time; several at once do no harm."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._store = AdapterStore.of(settings)

    async def run_forever(self, is_stopping: Callable[[], bool]) -> None:
        """Look every `versions.check_minutes` until `is_stopping()`; what fails is tried again at the next look."""
        interval = self._settings.versions.check_minutes * 60.0
        due = time.monotonic() + min(FIRST_LOOK, interval)
        while not is_stopping():
            await asyncio.sleep(0.5)
            if not interval or time.monotonic() < due:
                continue
            due = time.monotonic() + interval
            try:
                await asyncio.to_thread(self.remove_all)
            except (SQLAlchemyError, AdapterError, OSError) as error:
                log.warning("cannot remove old versions", error=str(error))

    def remove_all(self) -> list[Removal]:
        """Remove what may go, of every agent."""
        bind(self._journal, self._store)
        with self._journal.read() as session:
            names = [row.name for row in agents.listed(session)]
        done = [self._remove(name, "retention") for name in names]
        for removal in done:
            for number, why in removal.plan.remove.items():
                log.info("removed a version's files", version=str(VersionName(removal.agent, number)), reason=why)
        return done

    def remove(self, agent: str, *, actor: str, is_dry: bool = False) -> Removal:
        """Remove what may go of one agent; with `is_dry` only say what that is.

        Raises NotFound for an unknown agent, AdapterError where the journal is not the store's own.
        """
        with self._journal.read() as session:
            agents.find(session, agent)
            if is_dry:
                return Removal(agent, self._plan(session, agent), False)
        bind(self._journal, self._store)
        return self._remove(agent, actor)

    def _remove(self, agent: str, actor: str) -> Removal:
        with self._journal.read() as session:
            wanted = self._plan(session, agent)
        self._finish(agent)
        done = Plan(keep=dict(wanted.keep))
        for number, why in sorted(wanted.remove.items()):
            if self._mark(agent, number, why, actor):
                self._store.remove(agent, number)
                done.remove[number] = why
            else:
                done.keep[number] = "came into use meanwhile"
        return Removal(agent, done, True)

    def _mark(self, agent: str, number: int, why: str, actor: str) -> bool:
        """Say that the version's files are gone, unless it is needed after all: who promotes it waits for this row's lock."""
        with self._journal.write() as session:
            row = session.get_one(VersionRow, (agent, number), with_for_update=True)
            if row.removed_at is not None or number not in self._plan(session, agent).remove:
                return False
            row.removed_at = time.time()
            audit.record(session, actor, "remove", str(VersionName(agent, number)), row.state, None, why, agent=agent)
            return True

    def _finish(self, agent: str) -> None:
        """Take away what earlier removals left behind."""
        self._store.sweep_removed(agent)
        present = set(self._store.versions(agent))
        with self._journal.read() as session:
            gone = [row.version for row in versions(session, agent) if row.removed_at is not None and row.version in present]
        for number in gone:
            self._store.remove(agent, number)

    def _plan(self, session: Session, agent: str) -> Plan:
        chosen = self._settings.versions
        rows = [
            Kept(row.version, row.state, row.decided_at, row.is_pinned, row.removed_at is not None)
            for row in versions(session, agent)
        ]
        return plan(
            rows,
            self._uses(session, agent),
            keep_live=chosen.keep_live,
            keep_refused_days=chosen.keep_refused_days,
            now=time.time(),
        )

    def _uses(self, session: Session, agent: str) -> Uses:
        alias: Any = AliasRow
        canary: Any = CanaryRow
        step: Any = StepRow
        job: Any = LoadJob
        running = session.scalars(select(CanaryRow).where(canary.agent == agent, canary.state == "running")).all()
        waiting = session.scalars(select(LoadJob).where(job.state.in_(("queued", "leased")))).all()
        open_steps = select(step.parent).where(step.agent == agent, step.outcome == StepOutcome.OPEN)
        table = routes.watch(routes_file(self._settings)).current()
        route = table.agents.get(agent)
        busy = in_flight(self._settings.run_dir)
        return Uses(
            aliases=set(session.scalars(select(alias.version).where(alias.agent == agent))),
            canaries={number for row in running for number in (row.version, row.baseline)},
            loaded=set(route.loaded) | {route.live, route.previous or 0} if route else set(),
            in_flight=None if busy is None else _numbers(busy, agent),
            jobs={int(str(row.payload.get("version", 0))) for row in waiting if row.payload.get("agent") == agent},
            step_parents=set(session.scalars(open_steps)),
        )


def _numbers(names: set[str], agent: str) -> set[int]:
    parsed = filter(None, map(VersionName.parse, names))
    return {name.version for name in parsed if name.agent == agent}
