"""The swapper: makes a published candidate prove itself on the engines and, if it does, makes it live. Serving goes on.

Load beside the old version under a new name, probe, ask the retention set, warm, flip the alias, drain, unload. The
previous version stays loaded, so that a rollback is a pointer flip. Engines that lost adapters (a restart) get them back.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import select

from adapters import registry
from adapters.gate import Evidence, GateVerdict, Probe, decide
from adapters.store import AdapterStore
from burnish import routes
from burnish.config import Settings
from burnish.errors import AdapterError, Conflict, EngineError, EngineUnavailable
from burnish.journal import Journal, jobs
from burnish.journal.tables import InteractionRow, LoadJob
from burnish.journal.turns import from_bytes
from burnish.records import VersionName, VersionState
from server.inflight import is_drained
from server.engine import Engine
from server.launch import engine_key, engine_urls
from server.prepare import prepare, routes_file
from server.retention import RetentionSet, read_prompts
from server.vllm import VllmEngine

log = structlog.get_logger()
TOLERANCE = {"float32": 1e-3, "auto": 0.2, "bfloat16": 0.2, "float16": 0.2}
N_WARM = 4


class Swapper:
    """One per serving host. `run_once` does what there is to do and returns True when it decided a candidate."""

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
    ) -> None:
        self._journal = journal
        self._store = store
        self._engines = engines
        self._file = routes_file
        self._base_name = base_name
        self._tolerance = tolerance
        self._retention = retention
        self._margin = retention_margin
        self._draining: dict[VersionName, int] = {}

    async def run_once(self) -> bool:
        """Restore what engines have lost, try one candidate, unload what has drained."""
        await self.reconcile()
        await self._unload_drained()
        with self._journal.write() as session:
            leased = jobs.lease(session, LoadJob, "swapper", seconds=30.0)
        for job in leased:
            await self._decide(job)
        return bool(leased)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.2) -> None:
        """Work until `is_stopping()`; an engine that is away is waited for."""
        is_away = False
        while not is_stopping():
            try:
                has_decided = await self.run_once()
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
        """Load on every engine the versions that the serving table says are loaded."""
        table = routes.watch(self._file).current()
        for engine in self._engines:
            present = set(await engine.models())
            for agent in table.agents.values():
                for number in agent.loaded:
                    name = VersionName(agent.name, number)
                    if str(name) not in present:
                        await engine.load(str(name), str(self._store.path(agent.name, number)))
                        log.info("restored an adapter", version=str(name), engine=engine.url)

    async def _decide(self, job: jobs.Leased) -> None:
        agent, number = str(job.payload["agent"]), int(job.payload["version"])
        name = VersionName(agent, number)
        with self._journal.read() as session:
            if registry.version(session, agent, number).state != VersionState.CANDIDATE:
                return await self._promote_again(job, name)
            live = registry.alias(session, agent) or 0
        started = time.monotonic()
        try:
            evidence = await self._gather(name)
        except EngineUnavailable as error:
            self._postpone(job, str(error))
            raise
        verdict = decide(evidence)
        if verdict.has_passed:
            await self._warm(name)
            self._make_live(job, name, live, evidence)
        else:
            await self._refuse(job, name, evidence, verdict)
        log.info(
            "promoted" if verdict.has_passed else "refused",
            version=str(name),
            seconds=round(time.monotonic() - started, 2),
            reasons="; ".join(verdict.faults) or None,
            **{key: value for key, value in evidence.as_dict().items() if key != "mechanical"},
        )

    async def _gather(self, name: VersionName) -> Evidence:
        """All evidence on a candidate. It is left loaded on every engine when sound."""
        try:
            self._store.verify(name.agent, name.version)
        except AdapterError as error:
            return Evidence(mechanical_fault=str(error), is_mechanical_checked=True)
        try:
            await self._load(name)
            probe = await self._probe(self._engines[0], name)
            for engine in self._engines[1:]:
                other = await self._probe(engine, name)
                probe = max(probe, other, key=lambda p: p.gap)
        except EngineUnavailable:
            raise
        except EngineError as error:
            return Evidence(mechanical_fault=f"the engine refused it: {error}", is_mechanical_checked=True)
        evidence = Evidence(is_mechanical_checked=True, probe=probe)
        if not decide(replace(evidence, needs_retention=False)).has_passed:
            return evidence
        outcome = await self._retention.compare(self._engines[0], str(name), self._base_name, self._margin)
        return replace(evidence, retention=outcome)

    async def _load(self, name: VersionName) -> None:
        """Load on every engine, or on none."""
        path = str(self._store.path(name.agent, name.version).resolve())
        done: list[Engine] = []
        try:
            for engine in self._engines:
                if str(name) not in await engine.models():
                    await engine.load(str(name), path)
                    done.append(engine)
        except EngineError:
            for engine in done:
                await engine.unload(str(name))
            raise

    async def _probe(self, engine: Engine, name: VersionName) -> Probe:
        """The engine's log-probs of the probe's tokens beside the learner's."""
        recorded = json.loads((self._store.path(name.agent, name.version) / "probe.json").read_text(encoding="utf-8"))
        axes: dict[str, list[float]] = {key: [] for key in ("engine", "candidate", "parent", "base")}
        for place in recorded["positions"]:
            row = recorded["rows"][place["row"]]
            told = await engine.next_logprobs(str(name), [*row["prompt_ids"], *row["completion_ids"][: place["index"]]])
            # A token that the engine does not even tell is at most as likely as the last one that it does.
            axes["engine"].append(told.get(place["token_id"], min(told.values())))
            for key in ("candidate", "parent", "base"):
                axes[key].append(place[key])
        return Probe(**axes, tolerance=self._tolerance)

    async def _warm(self, name: VersionName) -> None:
        """Let the new version read the newest prompts, so that its first real request finds them cached."""
        turn: Any = InteractionRow
        with self._journal.read() as session:
            newest = select(turn.prompt_ids).where(turn.agent == name.agent).order_by(turn.ended_at.desc()).limit(N_WARM)
            prompts = [list(from_bytes("i", row[0])) for row in session.connection().execute(newest)]
        for prompt in prompts:
            for engine in self._engines:
                if len(prompt) > 1:
                    await engine.next_logprobs(str(name), prompt)

    def _make_live(self, job: jobs.Leased, name: VersionName, live: int, evidence: Evidence) -> None:
        shown = evidence.as_dict()
        try:
            with self._journal.write() as session:
                registry.promote(
                    session, name.agent, name.version, expected=live, actor="gate", reason="passed", evidence=shown
                )
                jobs.finish(session, LoadJob, job)
        except Conflict as error:
            return self._postpone(job, str(error))
        self._flip(name)

    def _flip(self, name: VersionName) -> None:
        """Write the serving table; what is neither live nor previous any more begins to drain."""
        table = self._sync(name.agent, also_loaded=name.version)
        route = table.agents[name.agent]
        for number in route.loaded:
            if number not in {route.live, route.previous}:
                self._draining.setdefault(VersionName(name.agent, number), table.generation)

    async def _promote_again(self, job: jobs.Leased, name: VersionName) -> None:
        """An operator named an older version that is not loaded: load it, then flip."""
        if name.version and not job.payload.get("promote"):
            with self._journal.write() as session:
                jobs.finish(session, LoadJob, job)
            return
        self._store.verify(name.agent, name.version)
        await self._load(name)
        with self._journal.write() as session:
            live = registry.alias(session, name.agent) or 0
            registry.promote(session, name.agent, name.version, expected=live, actor=str(job.payload.get("actor", "operator")))
            jobs.finish(session, LoadJob, job)
        self._flip(name)

    async def _refuse(self, job: jobs.Leased, name: VersionName, evidence: Evidence, verdict: GateVerdict) -> None:
        with self._journal.write() as session:
            registry.refuse(session, name.agent, name.version, reason="; ".join(verdict.faults), evidence=evidence.as_dict())
            jobs.finish(session, LoadJob, job)
        for engine in self._engines:
            await engine.unload(str(name))

    def _postpone(self, job: jobs.Leased, error: str) -> None:
        with self._journal.write() as session:
            jobs.fail(session, LoadJob, job, error, max_attempts=1_000_000)

    def _sync(self, agent: str, *, also_loaded: int | None = None, unloaded: int | None = None) -> routes.Routes:
        return sync_routes(self._journal, self._file, agent, also_loaded=also_loaded, unloaded=unloaded)

    async def _unload_drained(self) -> None:
        """Unload what no alias names any more, once no gateway has a request on it."""
        table = routes.watch(self._file).current()
        for name, generation in list(self._draining.items()):
            route = table.agents.get(name.agent)
            if route is None or name.version in {route.live, route.previous}:
                del self._draining[name]
            elif is_drained(self._file.parent, str(name), generation):
                await self._retire(name)

    async def _retire(self, name: VersionName) -> None:
        table = self._sync(name.agent, unloaded=name.version)
        # A request may have been admitted under the old table in this very moment: drain once more before unloading.
        for _ in range(100):
            if is_drained(self._file.parent, str(name), table.generation):
                break
            await asyncio.sleep(0.1)
        else:
            self._draining[name] = self._sync(name.agent, also_loaded=name.version).generation
            return
        for engine in self._engines:
            await engine.unload(str(name))
        del self._draining[name]
        log.info("unloaded", version=str(name))


def sync_routes(
    journal: Journal, file: Path, agent: str, *, also_loaded: int | None = None, unloaded: int | None = None
) -> routes.Routes:
    """Write the registry's aliases of `agent` into the serving table, with the change in what is loaded."""

    def change(table: routes.Routes) -> routes.Routes:
        with journal.read() as session:
            live = registry.alias(session, agent) or 0
            previous = registry.alias(session, agent, registry.PREVIOUS)
        route = table.agents.get(agent) or routes.AgentRoute(agent)
        loaded = (set(route.loaded) | ({also_loaded} if also_loaded else set())) - {unloaded}
        route = replace(route, live=live, previous=previous, loaded=tuple(sorted(n for n in loaded if n is not None)))
        return replace(table, agents={**table.agents, agent: route})

    return routes.update(file, change)


async def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """The swapper's process: works until `is_stopping()`."""
    journal = prepare(settings)
    engines = [VllmEngine(url, engine_key(settings)) for url in engine_urls(settings)]
    prompts = read_prompts(settings.retention_file, settings.gate.n_retention) if settings.retention_file else []
    dtype = "float32" if settings.engine.dtype == "auto" and shutil.which("nvidia-smi") is None else settings.engine.dtype
    if not prompts:
        log.warning("no retention set is configured (gate.retention): no candidate can pass the gate")
    swapper = Swapper(
        journal,
        AdapterStore(settings.adapters_dir.resolve()),
        engines,
        routes_file(settings),
        base_name=settings.engine.base_name,
        tolerance=settings.gate.probe_tolerance or TOLERANCE[dtype],
        retention=RetentionSet(prompts),
        retention_margin=settings.gate.retention_margin,
    )
    try:
        await swapper.run_forever(is_stopping)
    finally:
        for engine in engines:
            await engine.close()
