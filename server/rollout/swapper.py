"""The swapper: tries published candidates and makes those that pass live. Serving goes on.

It loads a candidate beside the old version under a new name, probes it, asks the forgetting prompts, warms it, flips
the alias, and unloads what has drained. The previous version stays loaded, so a rollback is a pointer flip. Engines
that lost adapters in a restart get them back. The serving table says what has to be unloaded, so a restart forgets
nothing.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from burnish import serving_table
from burnish.adapters.evidence.gate import Evidence, decide
from burnish.adapters.evidence.heldout_replay import Replay
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents, auto_rollback, lifecycle
from burnish.adapters.serving import publish
from burnish.config import Personal
from burnish.errors import AdapterError, BurnishError, Conflict, EngineError, EngineUnavailable, Postponed
from burnish.in_flight import in_flight
from burnish.journal import Journal, jobs
from burnish.journal.changes import Rest
from burnish.journal.tables import LoadJob
from burnish.logs import told
from burnish.records import VersionName, VersionState
from burnish.server.rollout.canary.observer import Observer
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.heldout_replay import Replayer
from burnish.server.rollout.personal_agents import PersonalAgents
from burnish.server.rollout.trial import Trial
from burnish.server.rollout.unloading import Unloader

log = structlog.get_logger()
LEASE_SECONDS = 30.0
FOREVER = 1_000_000
RECONCILE_SECONDS = 1.0
"""Seconds between two looks at the engines' adapters: asking takes time from waiting streams."""


class Swapper:
    """One per serving host. `run_once` does the work that is due and returns True if it decided a candidate."""

    def __init__(
        self,
        journal: Journal,
        store: AdapterStore,
        engines: Sequence[Engine],
        routes_file: Path,
        *,
        base_name: str,
        tolerance: float,
        retention: RetentionSet,
        retention_margin: float,
        observer: Observer | None = None,
        personal: Personal | None = None,
        replayer: Replayer | None = None,
        acceptance: RetentionSet | None = None,
        acceptance_margin: float = 0.0,
    ) -> None:
        self._journal = journal
        self._store = store
        self._engines = engines
        self._file = routes_file
        self._base_name = base_name
        self._trial = Trial(
            journal,
            store,
            engines,
            retention,
            base_name=base_name,
            tolerance=tolerance,
            margin=retention_margin,
            acceptance=acceptance,
            acceptance_margin=acceptance_margin,
            is_busy=lambda: in_flight(routes_file.parent) != set(),
        )
        self._observer = observer
        self._replayer = replayer
        self._shown: dict[VersionName, Evidence] = {}  # of candidates that wait for their held-out replay
        self._unloader = Unloader(journal, engines, routes_file)
        self._personal_agents = PersonalAgents(
            journal, store, routes_file, self._unloader, self._trial.load, personal or Personal()
        )
        self._due_at = 0.0
        self._generation = -1
        self._lost: set[VersionName] = set()
        self._waits_for = ""

    async def run_once(self) -> bool:
        """Restore lost adapters, look at canaries, try one candidate, unload what has drained."""
        await self.reconcile()
        return await self._work_off()

    async def _work_off(self) -> bool:
        """All but a look at the engines."""
        if self._observer is not None:
            await asyncio.to_thread(self._observer.look)
        self._personal_agents.unload_idle()
        table = self._table()
        self._generation = table.generation
        await self._unloader.run_once(table)
        leased = await asyncio.to_thread(self._lease)
        for job in leased:
            await self._work(job)
        return bool(leased)

    def _lease(self) -> Sequence[jobs.Leased]:
        with self._journal.write() as session:
            leased = jobs.lease(session, LoadJob, "swapper", seconds=LEASE_SECONDS)
            self._due_at = jobs.due_at(session, LoadJob)
        return leased

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Work until `is_stopping()`. An engine that does not answer is waited for. While the journal stays as it is
        and nothing drains, only the engines are looked at.
        """
        is_away, looked_at, rest, is_idle = False, -math.inf, Rest(self._journal.changes), False
        while not is_stopping():
            try:
                if is_away or time.monotonic() > looked_at + RECONCILE_SECONDS:
                    await self.reconcile()
                    looked_at = time.monotonic()
                if not is_idle or self._has_news() or rest.is_over(self._due_at):
                    rest.begin()
                    is_idle = not await self._work_off()
                if is_away:
                    log.info("the engine answers")
                    is_away = False
                if is_idle and self._has_news():
                    await asyncio.sleep(interval)
                elif is_idle:
                    await rest.nap(interval, RECONCILE_SECONDS)
            except EngineError as error:  # also a refusal that says nothing about one version: a wrong key, for example
                if not is_away and looked_at == -math.inf:
                    log.info("waiting for the engine, which starts")
                elif not is_away:
                    log.warning("waiting for the engine", error=told(error))
                is_away = True
                is_idle = False
                await asyncio.sleep(1.0)

    def _has_news(self) -> bool:
        """True if there may be work that the journal does not tell of."""
        is_behind = self._observer is not None and self._observer.is_behind
        return is_behind or self._unloader.is_busy or self._table().generation != self._generation

    async def reconcile(self) -> None:
        """Load on every engine the versions that the serving table lists as loaded. A failure is reported once."""
        wanted = [VersionName(agent.name, number) for agent in self._table().agents.values() for number in agent.loaded]
        for engine in self._engines:
            present = await engine.models()
            for name in wanted:
                if str(name) not in present:
                    await self._restore(engine, name)

    async def _restore(self, engine: Engine, name: VersionName) -> None:
        try:
            await engine.load(str(name), str(self._store.path(name.agent, name.version).resolve()))
        except EngineUnavailable:
            raise
        except EngineError as error:
            if name not in self._lost:
                self._lost.add(name)
                log.error("an adapter cannot be restored", version=str(name), engine=engine.url, error=str(error))
        else:
            self._lost.discard(name)
            log.info("restored an adapter", version=str(name), engine=engine.url)

    async def _work(self, job: jobs.Leased) -> None:
        name = VersionName(str(job.payload["agent"]), int(job.payload["version"]))
        if job.payload.get("kind") == "wake":
            return await self._wake(job, name.agent)
        with self._journal.read() as session:
            is_candidate = bool(name.version) and (
                lifecycle.version(session, name.agent, name.version).state == VersionState.CANDIDATE
            )
            live = lifecycle.alias(session, name.agent) or 0
            held = agents.find(session, name.agent).held
            orphan = auto_rollback.orphaned(session, name.agent, name.version) if is_candidate else None
        try:
            if orphan is not None:
                await self._refuse(job, name, Evidence(), orphan.reason, gives_back=orphan.comes_again)
                log.info("refused", version=str(name), reasons=orphan.reason)
            elif is_candidate and held:
                self._fail(job, Conflict(f"{name.agent} is held: {held}; `burnish agents end-hold` ends it"), FOREVER)
            elif is_candidate:
                await self._try(job, name, live)
            elif job.payload.get("canary"):
                await self._canary_again(job, name, live)
            elif job.payload.get("promote"):
                await self._promote_again(job, name)
            else:
                self._finish(job)
        except Postponed as error:
            if self._waits_for != str(error):
                self._waits_for = str(error)
                log.info("a candidate waits", version=str(name), reason=told(error))
            self._fail(job, error, FOREVER)
        except EngineUnavailable as error:
            self._fail(job, error, FOREVER)
            raise

    async def _wake(self, job: jobs.Leased, agent: str) -> None:
        try:
            await self._personal_agents.wake(agent)
        except EngineUnavailable as error:
            self._fail(job, error, FOREVER)
            raise
        except (AdapterError, EngineError, Conflict) as error:
            log.error("a personal agent cannot be loaded", agent=agent, error=str(error))
            return self._fail(job, error, 3)
        self._finish(job)

    async def _try(self, job: jobs.Leased, name: VersionName, live: int) -> None:
        started = time.monotonic()
        evidence = await self._shown_before(name) or await self._trial.gather(name)
        verdict = decide(evidence)
        if verdict.has_passed and self._replayer is not None:
            if (left_out := self._replayer.left_out(name.agent)) is not None:
                evidence = replace(evidence, left_out=(*evidence.left_out, left_out))
            else:
                self._shown = {name: evidence}
                evidence = replace(evidence, needs_replay=True, replay=await self._replay(name, live))
                verdict = decide(evidence)
                self._shown = {}
        outcome = "refused"
        if verdict.has_passed:
            await self._trial.warm(name)
            outcome = self._accept(job, name, live, evidence)
        else:
            await self._refuse(job, name, evidence, "; ".join(verdict.faults), gives_back=verdict.has_forgotten)
        seconds, reasons = round(time.monotonic() - started, 2), "; ".join(verdict.faults)
        log.info(outcome, version=str(name), seconds=seconds, **({"reasons": reasons} if reasons else {}))

    async def _shown_before(self, name: VersionName) -> Evidence | None:
        """The evidence of a waiting candidate. It is loaded again if an engine has lost it."""
        shown = self._shown.get(name)
        if shown is not None:
            try:
                await self._trial.load(name)
            except EngineUnavailable:
                raise
            except EngineError as error:
                log.warning("a waiting candidate is tried anew", version=str(name), error=told(error))
                self._shown = {}
                return None
        return shown

    async def _replay(self, name: VersionName, live: int) -> Replay:
        """Raises Postponed."""
        assert self._replayer is not None
        return await self._replayer.outcome(name, live, str(VersionName(name.agent, live)) if live else self._base_name)

    def _accept(self, job: jobs.Leased, name: VersionName, live: int, evidence: Evidence) -> str:
        """Put a version that passed the gate on canary if the settings want one, else make it live. Returns what was
        done.
        """
        observer = self._observer
        left_out = observer.left_out(name.agent) if observer is not None else None
        if left_out is not None:
            evidence = replace(evidence, left_out=(*evidence.left_out, left_out))
        shown = evidence.as_dict()
        canary = observer.canary_beside(name.agent, live) if observer is not None and left_out is None else None
        watch = observer.watch_beside(name.agent, live) if observer is not None and canary is None else None
        try:
            with self._journal.write() as session:
                if canary is not None:
                    row = lifecycle.version(session, name.agent, name.version)
                    row.evidence = lifecycle.with_data(row, shown)
                    canary.of(session, name, "gate")
                else:
                    lifecycle.promote(
                        session, name.agent, name.version, expected=live, actor="gate", reason="passed", evidence=shown
                    )
                if watch is not None:
                    watch.of(session, name, "gate")
                jobs.finish(session, LoadJob, job)
        except Conflict as error:  # an operator was faster: the trial is repeated from the new state
            self._fail(job, error, FOREVER)
            return "put off"
        publish.sync(self._journal, self._file, name.agent, also_loaded=name.version)
        return f"on {canary.kind}" if canary is not None else "promoted"

    async def _canary_again(self, job: jobs.Leased, name: VersionName, live: int) -> None:
        """Load an older version that an operator put on canary. A version that cannot be loaded is given up."""
        try:
            if self._observer is None:
                raise Conflict("no canaries here")
            self._store.verify(name.agent, name.version)
            await self._trial.load(name)
            share = float(job.payload["share"]) if job.payload.get("share") else None
            canary = self._observer.canary_by_hand(name.agent, live, share)
            with self._journal.write() as session:
                canary.of(session, name, str(job.payload.get("actor", "operator")))
                jobs.finish(session, LoadJob, job)
        except EngineUnavailable:
            raise
        except (AdapterError, EngineError, Conflict) as error:
            log.error("cannot begin a canary", version=str(name), error=str(error))
            return self._fail(job, error, 1)
        publish.sync(self._journal, self._file, name.agent, also_loaded=name.version)
        log.info("on canary", version=str(name))

    async def _refuse(
        self, job: jobs.Leased, name: VersionName, evidence: Evidence, reason: str, *, gives_back: bool
    ) -> None:
        shown = evidence.as_dict()
        with self._journal.write() as session:
            lifecycle.refuse(session, name.agent, name.version, reason=reason, evidence=shown, gives_back=gives_back)
            jobs.finish(session, LoadJob, job)
        await self._unloader.unload(name)

    async def _promote_again(self, job: jobs.Leased, name: VersionName) -> None:
        """Load an older version that an operator wants live, then flip. A version that cannot be loaded is given up."""
        actor, reason = str(job.payload.get("actor", "operator")), str(job.payload.get("reason", "promoted by hand"))
        try:
            self._store.verify(name.agent, name.version)
            await self._trial.load(name)
            with self._journal.write() as session:
                expected = int(job.payload.get("expected", lifecycle.alias(session, name.agent) or 0))
                lifecycle.promote(session, name.agent, name.version, expected=expected, actor=actor, reason=reason)
                jobs.finish(session, LoadJob, job)
        except EngineUnavailable:
            raise
        except (AdapterError, EngineError, Conflict) as error:
            log.error("cannot promote", version=str(name), error=str(error))
            return self._fail(job, error, 1)
        publish.sync(self._journal, self._file, name.agent, also_loaded=name.version)
        log.info("promoted by hand", version=str(name))

    def _finish(self, job: jobs.Leased) -> None:
        with self._journal.write() as session:
            jobs.finish(session, LoadJob, job)

    def _fail(self, job: jobs.Leased, error: BurnishError, max_attempts: int) -> None:
        with self._journal.write() as session:
            jobs.fail(session, LoadJob, job, str(error), max_attempts=max_attempts)

    def _table(self) -> serving_table.Routes:
        return serving_table.watch(self._file).current()
