"""The product's swapper without forgetting prompts. Every voice would fail them, because it knows only its own words.

All else is real: files are verified, loaded, probed, warmed, flipped, drained, unloaded. `python -m
benchmarks.adapters.swapper` reads the settings from the environment.
"""

import asyncio
import os
import signal
from collections.abc import Collection

from burnish import config, logs
from burnish.adapters.evidence.gate import N_MIN_RETENTION, Retention
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.serving.prepare import prepare, routes_file
from burnish.config import BASE_NAME
from burnish.keys import engine_key
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.engine.vllm import VllmEngine
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.process import NICENESS, tolerance_of
from burnish.server.rollout.swapper import Swapper

INTERVAL = 0.05


class Unasked(RetentionSet):
    """Reports without asking that nothing was forgotten."""

    def __init__(self) -> None:
        super().__init__(())

    async def compare(
        self, engine: Engine, candidate: str, base: str, margin: float, unchanged: Collection[int] = ()
    ) -> Retention:
        return Retention(N_MIN_RETENTION, 0, 1.0)


async def run(settings: config.Settings) -> None:
    os.nice(NICENESS)
    is_stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, is_stopping.set)
    engines = [VllmEngine(url, engine_key(settings)) for url in settings.engine_urls]
    swapper = Swapper(
        prepare(settings),
        AdapterStore(settings.adapters_dir.resolve()),
        engines,
        routes_file(settings),
        base_name=BASE_NAME,
        tolerance=max(1e-2, tolerance_of(settings)),
        retention=Unasked(),
        retention_margin=1.0,
    )
    try:
        await swapper.run_forever(is_stopping.is_set, INTERVAL)
    finally:
        for engine in engines:
            await engine.close()


if __name__ == "__main__":
    chosen = config.load()
    logs.configure(chosen.log_format, "swapper")
    asyncio.run(run(chosen))
