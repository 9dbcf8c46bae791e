"""The swapper: tries published candidates and makes those that pass live. Serving goes on.

It loads a candidate beside the old version under a new name, probes it, asks the forgetting prompts, warms it, flips
the alias, and unloads what has drained. The previous version stays loaded, so a rollback is a pointer flip. Engines
that lost adapters in a restart get them back. The serving table says what has to be unloaded, so a restart forgets
nothing.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from burnish import serving_table
from burnish.adapters import model_files
from burnish.adapters.evidence.acceptance import Rules as AcceptanceRules
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.evidence.gate import Evidence, GateVerdict, decide
from burnish.adapters.evidence.heldout_replay import Replay
from burnish.adapters.files.retention import FileRetention
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents, auto_rollback, lifecycle
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import prepare, routes_file
from burnish.config import ABILITIES, BASE_NAME, Personal, Settings, machine
from burnish.errors import AdapterError, BurnishError, Conflict, EngineError, EngineUnavailable, Postponed
from burnish.in_flight import in_flight
from burnish.journal import Journal, jobs
from burnish.journal.tables import LoadJob
from burnish.keys import engine_key
from burnish.records import VersionName, VersionState
from burnish.server.rollout.agent_settings import settings_by_agent
from burnish.server.rollout.alerts import Alerts
from burnish.server.rollout.base_predictions import Predictions
from burnish.server.rollout.canary.mirror import Mirror
from burnish.server.rollout.canary.observer import Observer
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.engine.vllm import VllmEngine
from burnish.server.rollout.forgetting_prompts import GENERAL_MAX_TOKENS, MAX_TOKENS, RetentionSet, read_prompts
from burnish.server.rollout.heldout_replay import Replayer
from burnish.server.rollout.personal_agents import PersonalAgents
from burnish.server.rollout.shadow_groups.drawer import Drawer
from burnish.server.rollout.shadow_groups.engine_source import VllmSource
from burnish.server.rollout.trial import Trial
from burnish.server.rollout.unloading import Unloader

log = structlog.get_logger()
TOLERANCE = {"float32": 1e-3, "auto": 0.4, "bfloat16": 0.4, "float16": 0.4}
LEASE_SECONDS = 30.0
FOREVER = 1_000_000
ENGINE_SECONDS = 1.0
"""Seconds between two tries to reach an engine that starts."""
RECONCILE_SECONDS = 1.0
"""Seconds between two looks at the engines' adapters: asking takes time from waiting streams."""
NICENESS = 15
"""The niceness of the swapper. On a busy machine it leaves the processors to the engine and the gateways."""


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
        self._lost: set[VersionName] = set()
        self._waits_for = ""

    async def run_once(self, *, looks_at_engines: bool = True) -> bool:
        """Restore lost adapters (if it `looks_at_engines`), look at canaries, try one candidate, unload what has
        drained.
        """
        if looks_at_engines:
            await self.reconcile()
        if self._observer is not None:
            self._observer.look()
        self._personal_agents.unload_idle()
        await self._unloader.run_once(self._table())
        with self._journal.write() as session:
            leased = jobs.lease(session, LoadJob, "swapper", seconds=LEASE_SECONDS)
        for job in leased:
            await self._work(job)
        return bool(leased)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Work until `is_stopping()`. An engine that does not answer is waited for."""
        is_away, looked_at = False, -math.inf
        while not is_stopping():
            is_due = is_away or time.monotonic() > looked_at + RECONCILE_SECONDS
            try:
                has_decided = await self.run_once(looks_at_engines=is_due)
                looked_at = time.monotonic() if is_due else looked_at
                if is_away:
                    log.info("the engine answers again")
                    is_away = False
                if not has_decided:
                    await asyncio.sleep(interval)
            except EngineUnavailable as error:
                if not is_away:
                    log.warning("waiting for the engine", error=str(error))
                    is_away = True
                await asyncio.sleep(1.0)

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
            orphaned = auto_rollback.why_orphaned(session, name.agent, name.version) if is_candidate else None
        try:
            if orphaned:
                await self._refuse(job, name, Evidence(), GateVerdict((orphaned,)))
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
                log.info("a candidate waits", version=str(name), reason=str(error))
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
            await self._refuse(job, name, evidence, verdict)
        shown = {key: value for key, value in evidence.as_dict().items() if key != "mechanical"}
        log.info(
            outcome,
            version=str(name),
            seconds=round(time.monotonic() - started, 2),
            reasons="; ".join(verdict.faults) or None,
            **shown,
        )

    async def _shown_before(self, name: VersionName) -> Evidence | None:
        """The evidence of a waiting candidate. It is loaded again if an engine has lost it."""
        shown = self._shown.get(name)
        if shown is not None:
            try:
                await self._trial.load(name)
            except EngineUnavailable:
                raise
            except EngineError as error:
                log.warning("a waiting candidate is tried anew", version=str(name), error=str(error))
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
                    lifecycle.version(session, name.agent, name.version).evidence = shown
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

    async def _refuse(self, job: jobs.Leased, name: VersionName, evidence: Evidence, verdict: GateVerdict) -> None:
        with self._journal.write() as session:
            lifecycle.refuse(
                session,
                name.agent,
                name.version,
                reason="; ".join(verdict.faults),
                evidence=evidence.as_dict(),
                gives_back=verdict.has_forgotten,
            )
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


def tolerance_of(settings: Settings) -> float:
    """How far engine and learner may differ on a probe, by the type of the engine's weights."""
    return TOLERANCE[machine.dtype(settings.engine.dtype, settings.engine.model)]


async def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """The swapper's process: works until `is_stopping()`."""
    journal = prepare(settings)
    engines = [VllmEngine(url, engine_key(settings)) for url in settings.engine_urls]
    file = settings.forgetting_file
    prompts, record = read_prompts(file, None), BaseRecord.of(settings)
    retention = RetentionSet(
        prompts,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        record=record,
        max_tokens=GENERAL_MAX_TOKENS if file == ABILITIES else MAX_TOKENS,
        fallback=Predictions(prompts) if record.has_fallback else None,
    )
    alerts, of = Alerts(settings.alerts.webhook), settings_by_agent(settings, journal)
    swapper = Swapper(
        journal,
        AdapterStore.of(settings),
        engines,
        routes_file(settings),
        base_name=BASE_NAME,
        tolerance=tolerance_of(settings),
        retention=retention,
        retention_margin=settings.gate.forgetting_margin,
        acceptance=_acceptance(settings),
        acceptance_margin=settings.gate.acceptance_margin,
        observer=Observer(journal, routes_file(settings), of, alerts),
        personal=settings.personal,
        replayer=Replayer(journal, engines[0], of),
    )
    file_retention, mirror = FileRetention(settings, journal), Mirror(journal, engines[0])
    sources = [VllmSource(url, engine_key(settings)) for url in settings.engine_urls]
    drawer = Drawer(journal, sources, routes_file(settings), settings, of)
    asking = asyncio.create_task(_ask_base(settings, retention, engines[0], is_stopping))
    try:
        await asyncio.gather(*(part.run_forever(is_stopping) for part in (swapper, file_retention, mirror, drawer)))
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await alerts.close()
        for engine in engines:
            await engine.close()
        for source in sources:
            await source.close()


async def _ask_base(
    settings: Settings, retention: RetentionSet, engine: Engine, is_stopping: Callable[[], bool]
) -> None:
    """Ask the base the forgetting prompts as soon as the engine answers, so that no candidate waits for it. Without
    learning there will be none.
    """
    if not settings.learner.enabled or model_files.lack(settings.engine.model) is not None:
        return
    while not is_stopping():
        try:
            await retention.prepare(engine, BASE_NAME, lambda: in_flight(settings.run_dir) != set())
        except EngineUnavailable:
            await asyncio.sleep(ENGINE_SECONDS)
            continue
        if (standing := retention.standing) is not None:
            (log.error if standing.is_alarm else log.warning)(standing.sentence)
        return


def _acceptance(settings: Settings, rules: AcceptanceRules = AcceptanceRules()) -> RetentionSet | None:  # noqa: B008
    """The acceptance prompts. None if there are none. Raises ConfigError if they cannot be read."""
    if not settings.gate.acceptance_prompts:
        return None
    file = Path(settings.gate.acceptance_prompts)
    prompts = read_prompts(file, None, "gate.acceptance_prompts") * rules.n_draws
    how = f" {rules.temperature:g}" + (f" {rules.n_draws}" if rules.n_draws > 1 else "")
    digest = hashlib.sha256(file.read_bytes() + how.encode()).hexdigest()
    return RetentionSet(prompts, digest=digest, temperature=rules.temperature)
