"""A run's own Burnish on the shared engine: gateway, ingester, swapper, judge, learner, and a state directory."""

import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.adapters.stand import free_port
from benchmarks.learning.client import Client
from benchmarks.learning.engine import SharedEngine
from burnish import config
from burnish.config import Settings
from burnish.journal import Journal
from burnish.processes.parts import gateway_url
from burnish.sandbox.demo import stack


@dataclass(frozen=True, slots=True)
class Stack:
    """The client, the journal and the settings of a run."""

    settings: Settings
    journal: Journal
    client: Client

    @property
    def agent(self) -> str:
        return self.settings.agent.name


def agent_name(arm: str, seed: int) -> str:
    """A name for the agent of a run that no earlier run had, because vLLM knows adapters by name."""
    return f"{re.sub('[^A-Za-z0-9.-]', '-', arm)}-{seed}-{int(time.time()):x}"


@asynccontextmanager
async def running(
    folder: Path, engine: SharedEngine, agent: str, flags: Mapping[str, Any], cache: Path
) -> AsyncIterator[Stack]:
    """Run all parts but the engine in a fresh `folder`. On leaving, end them and unload the agent's versions.

    `flags` are dotted settings. `cache` keeps the base's own answers from run to run. Raises BurnishError if a part
    does not start.
    """
    own = {
        "state_dir": str(folder),
        "agent.name": agent,
        "engine.model": engine.model,
        "engine.urls": [engine.url],
        "engine.api_key": engine.api_key,
        "gateway.port": free_port(),
        "gateway.ui_port": 0,
        "versions.keep_live": 2,
    }
    settings = config.load(flags=own | dict(flags))
    _clear(folder, cache)
    key = stack.make_user_key(settings)
    journal = Journal.open(settings.journal_url)
    try:
        async with stack.running(settings, folder / "parts.log"):
            client = Client(gateway_url(settings), key)
            try:
                yield Stack(settings, journal, client)
            finally:
                await client.close()
        _keep(folder, cache)
    finally:
        journal.close()
        await engine.forget(agent)


def _clear(folder: Path, cache: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if cache.exists():
        shutil.copytree(cache, folder / "cache")


def _keep(folder: Path, cache: Path) -> None:
    if (folder / "cache").exists():
        shutil.copytree(folder / "cache", cache, dirs_exist_ok=True)
