"""The swapper's process: the swapper, and beside it file retention, the mirror, the drawer, notices and traces."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import structlog

from burnish.adapters import model_files
from burnish.adapters.evidence.acceptance import Rules as AcceptanceRules
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.files.retention import FileRetention
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.serving.prepare import prepare, routes_file
from burnish.config import ABILITIES, BASE_NAME, Settings, machine
from burnish.errors import EngineUnavailable
from burnish.in_flight import in_flight
from burnish.journal.outage import repeat
from burnish.keys import engine_key
from burnish.server.rollout.agent_settings import settings_by_agent
from burnish.server.rollout.base_predictions import Predictions
from burnish.server.rollout.canary.mirror import Mirror
from burnish.server.rollout.canary.observer import Observer
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.engine.vllm import VllmEngine
from burnish.server.rollout.forgetting_prompts import GENERAL_MAX_TOKENS, MAX_TOKENS, RetentionSet, read_prompts
from burnish.server.rollout.heldout_replay import Replayer
from burnish.server.rollout.notices.alerts import Alerts
from burnish.server.rollout.notices.news import News
from burnish.server.rollout.notices.webhook import Webhook
from burnish.server.rollout.shadow_groups.drawer import Drawer
from burnish.server.rollout.shadow_groups.engine_source import VllmSource
from burnish.server.rollout.swapper import Swapper
from burnish.server.rollout.traces.tail import TraceTail

log = structlog.get_logger()
TOLERANCE = {"float32": 1e-3, "auto": 0.4, "bfloat16": 0.4, "float16": 0.4}
ENGINE_SECONDS = 1.0
"""Seconds between two tries to reach an engine that starts."""
NICENESS = 15
"""The niceness of the swapper. On a busy machine it leaves the processors to the engine and the gateways."""


def tolerance_of(settings: Settings) -> float:
    """How far engine and learner may differ on a probe, by the type of the engine's weights."""
    return TOLERANCE[machine.dtype(settings.engine.dtype, settings.engine.model)]


async def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """The swapper's process: works until `is_stopping()`.

    After an error of the journal everything begins anew, because registry and serving table may differ then.
    """

    await repeat(lambda: _work(settings, is_stopping), is_stopping, 0.0)


async def _work(settings: Settings, is_stopping: Callable[[], bool]) -> None:
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
    alerts = Alerts(Webhook.of(settings), settings.run_dir / "notices.json")
    of = settings_by_agent(settings, journal)
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
    file_retention, mirror = (
        FileRetention(settings, journal),
        Mirror(journal, engines[0], redact=settings.journal.redact),
    )
    sources = [VllmSource(url, engine_key(settings)) for url in settings.engine_urls]
    drawer = Drawer(journal, sources, routes_file(settings), settings, of)
    asking = asyncio.create_task(_ask_base(settings, retention, engines[0], is_stopping))
    news, traces = News(journal, settings, of, alerts), TraceTail.of(journal, settings)
    working = (swapper, file_retention, mirror, drawer, news, traces)
    parts = [asyncio.create_task(part.run_forever(is_stopping)) for part in working]
    try:
        await asyncio.gather(*parts)
    finally:
        for task in (asking, *parts):
            task.cancel()
        traces.close()
        await asyncio.gather(asking, *parts, return_exceptions=True)
        await alerts.close()
        for engine in engines:
            await engine.close()
        for source in sources:
            await source.close()
        journal.close()


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
