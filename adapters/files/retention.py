"""Retention of version files: which may go, and their removal. A crash in between is repaired at the next look.

First the version's row says that its files are gone, in a transaction that has checked every use again. Only then the
files go, by a rename and then for good. The row stays: its number is never given again, and the rows that it was
trained on stay spent. A journal that does not belong to the store removes nothing.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col

from burnish import serving_table
from burnish.adapters.files.binding import bind
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents, audit
from burnish.adapters.registry.versions import versions
from burnish.adapters.serving.prepare import routes_file
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.in_flight import in_flight
from burnish.journal import Journal
from burnish.journal.tables import AliasRow, CanaryRow, LoadJob, StepRow, VersionRow
from burnish.records import StepOutcome, VersionName, VersionState

DAY = 86_400.0
_BAD: dict[str, str] = {VersionState.REFUSED: "refused", VersionState.ROLLED_BACK: "rolled back"}


@dataclass(frozen=True, slots=True)
class Kept:
    """A version as retention sees it. `decided_at` is the time when it went live or was refused, None while it is
    undecided.
    """

    number: int
    state: str
    decided_at: float | None
    is_pinned: bool = False
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Uses:
    """Who needs which version now, by number. `in_flight` is None if a gateway's report cannot be read."""

    aliases: Collection[int] = ()
    canaries: Collection[int] = ()
    loaded: Collection[int] = ()
    in_flight: Collection[int] | None = ()
    jobs: Collection[int] = ()
    step_parents: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The removed and the kept versions by number, each with its reason. Versions removed earlier are in neither."""

    remove: dict[int, str] = field(default_factory=dict)
    keep: dict[int, str] = field(default_factory=dict)


def plan(versions: Sequence[Kept], uses: Uses, *, keep_live: int, keep_refused_days: float, now: float) -> Plan:
    """Keep the newest `keep_live` versions that once were live and are unused. Keep bad versions for
    `keep_refused_days`.
    """
    made = Plan()
    retired: list[Kept] = []
    for version in sorted(versions, key=lambda version: version.number):
        if version.is_removed:
            continue
        if (why := _needed(version, uses)) is not None:
            made.keep[version.number] = why
        elif version.state == VersionState.RETIRED:
            retired.append(version)
        elif version.state in _BAD and version.decided_at is not None:
            age = (now - version.decided_at) / DAY
            where = made.keep if age < keep_refused_days else made.remove
            where[version.number] = f"{_BAD[version.state]}, decided {age:.1f} days ago"
        else:
            made.keep[version.number] = f"is {version.state}"
    # ordered by when they went live, not by number: a rollback's target counts as new
    retired.sort(key=lambda version: (version.decided_at or 0.0, version.number), reverse=True)
    for place, version in enumerate(retired, 1):
        where = made.keep if place <= keep_live else made.remove
        where[version.number] = (
            f"once live, {place} of the last {keep_live}" if place <= keep_live else "once live, long ago"
        )
    return made


def _needed(version: Kept, uses: Uses) -> str | None:
    """Why a version stays whatever the settings say. None if nothing holds it."""
    number = version.number
    if uses.in_flight is None:
        return "nobody knows what the gateways are answering"
    reasons = (
        (number in uses.aliases, "an alias names it"),
        (number in uses.canaries, "a canary needs it"),
        (number in uses.in_flight, "a request is under way on it"),
        (number in uses.loaded, "engines have it loaded"),
        (number in uses.jobs, "it waits to be loaded"),
        (number in uses.step_parents, "a step starts from it"),
        (version.is_pinned, "pinned"),
        (version.state not in (VersionState.RETIRED, *_BAD), f"is {version.state}"),
    )
    return next((why for holds, why in reasons if holds), None)


log = structlog.get_logger()
FIRST_LOOK = 60.0
"""Seconds after the start. By then, gateways have reported their running requests."""
LOOK_SECONDS = 600.0
"""Seconds between two looks at what may go."""
NAP = 1.0
"""Seconds after which the file retention looks whether it is to stop."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The removed (or removable) and the kept versions of one agent, by number, each with its reason.

    `quarantined` names the removed (or removable) directories that interrupted steps left.
    """

    agent: str
    plan: Plan
    is_done: bool
    quarantined: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """As the command line and the admin API show it."""
        return {
            "agent": self.agent,
            "dry_run": not self.is_done,
            "removed": self.plan.remove,
            "kept": self.plan.keep,
            "quarantined": list(self.quarantined),
        }


class FileRetention:
    """One look at a time. Several at once do no harm."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._store = AdapterStore.of(settings)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = LOOK_SECONDS) -> None:
        """Look every `interval` seconds until `is_stopping()`. A failure is tried again at the next look."""
        due = time.monotonic() + min(FIRST_LOOK, interval)
        while not is_stopping():
            await asyncio.sleep(NAP)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + interval
            try:
                await asyncio.to_thread(self.remove_all)
            except (SQLAlchemyError, AdapterError, OSError) as error:
                log.warning("cannot remove old versions", error=str(error))

    def remove_all(self) -> list[Removal]:
        """Remove every agent's versions that may go."""
        bind(self._journal, self._store)
        with self._journal.read() as session:
            names = [row.name for row in agents.listed(session)]
        done = [self._remove(name, "retention") for name in names]
        for removal in done:
            for number, why in removal.plan.remove.items():
                log.info("removed a version's files", version=str(VersionName(removal.agent, number)), reason=why)
        return done

    def remove(self, agent: str, *, actor: str, is_dry: bool = False) -> Removal:
        """Remove one agent's versions that may go, and what it has in quarantine. With `is_dry` only list them.

        Raises NotFound for an unknown agent, AdapterError if the journal does not belong to the store.
        """
        with self._journal.read() as session:
            agents.find(session, agent)
            found = self._store.quarantined(agent)
            names = [path.name for path in found]
            if is_dry:
                return Removal(agent, self._plan(session, agent), False, names)
        bind(self._journal, self._store)
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
        return replace(self._remove(agent, actor), quarantined=names)

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
        """Mark the version's files as gone, unless it is needed after all. A promotion waits for this row's lock."""
        with self._journal.write() as session:
            row = session.get_one(VersionRow, (agent, number), with_for_update=True)
            if row.removed_at is not None or number not in self._plan(session, agent).remove:
                return False
            row.removed_at = time.time()
            audit.record(session, actor, "remove", str(VersionName(agent, number)), row.state, None, why, agent=agent)
            return True

    def _finish(self, agent: str) -> None:
        """Remove what earlier removals left behind."""
        self._store.sweep_removed(agent)
        present = set(self._store.versions(agent))
        with self._journal.read() as session:
            gone = [
                row.version for row in versions(session, agent) if row.removed_at is not None and row.version in present
            ]
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
        running = session.scalars(
            select(CanaryRow).where(col(CanaryRow.agent) == agent, col(CanaryRow.state) == "running")
        ).all()
        waiting = session.scalars(select(LoadJob).where(col(LoadJob.state).in_(("queued", "leased")))).all()
        open_steps = select(col(StepRow.parent)).where(
            col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.OPEN
        )
        table = serving_table.watch(routes_file(self._settings)).current()
        route = table.agents.get(agent)
        busy = in_flight(self._settings.run_dir)
        return Uses(
            aliases=set(session.scalars(select(col(AliasRow.version)).where(col(AliasRow.agent) == agent))),
            canaries={number for row in running for number in (row.version, row.baseline)},
            loaded=set(route.loaded) | {route.live, route.previous or 0} if route else set(),
            in_flight=None if busy is None else _numbers(busy, agent),
            jobs={int(str(row.payload.get("version", 0))) for row in waiting if row.payload.get("agent") == agent},
            step_parents=set(session.scalars(open_steps)),
        )


def _numbers(names: set[str], agent: str) -> set[int]:
    parsed = filter(None, map(VersionName.parse, names))
    return {name.version for name in parsed if name.agent == agent}
