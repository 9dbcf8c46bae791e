"""One vLLM for many runs, because it takes a minute or two to start and a run's other parts take seconds."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.adapters.stand import free_port
from burnish import config
from burnish.adapters.serving.prepare import prepare
from burnish.config import SANDBOX_MODEL
from burnish.errors import BurnishError
from burnish.processes.parts import parts_of
from burnish.processes.supervisor import LocalLauncher, Supervisor
from burnish.server.rollout.engine.vllm import VllmEngine

SANDBOX: Mapping[str, Any] = {"engine.max_model_len": 2048}
"""Settings of an engine with the sandbox's model."""


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """Its URL, its key and the directory of its model."""

    url: str
    api_key: str
    model: str = str(SANDBOX_MODEL)

    async def forget(self, agent: str) -> None:
        """Unload every version of `agent`."""
        engine = VllmEngine(self.url, self.api_key)
        try:
            for name in await engine.models():
                if name.startswith(f"{agent}@"):
                    await engine.unload(name)
        finally:
            await engine.close()


@asynccontextmanager
async def running(folder: Path, n_runs: int, own: Mapping[str, Any] = SANDBOX) -> AsyncIterator[SharedEngine]:
    """vLLM with the settings `own` (dotted) and room for the adapters of `n_runs` concurrent runs.

    Its output goes to `folder`/engine.log. A run holds up to four versions: live, draining, previous, and a candidate.
    Raises BurnishError if it does not start.
    """
    flags = {
        "state_dir": str(folder),
        "log_format": "json",
        "engine.port": free_port(),
        "engine.api_key": secrets.token_hex(16),
        "engine.max_loras": 4 * n_runs,
        **own,
    }
    settings = config.load(flags=flags)
    prepare(settings).close()
    part = next(part for part in parts_of(settings, os.environ) if part.name == "engine")
    log_file = folder / "engine.log"
    with log_file.open("w", encoding="utf-8") as log:

        def emit(_: str, line: str) -> None:
            log.write(line + "\n")
            log.flush()

        supervisor = Supervisor([part], LocalLauncher(emit))
        task = asyncio.create_task(supervisor.run())
        try:
            await asyncio.wait_for(supervisor.wait_ready(), part.patience)
            url = f"http://127.0.0.1:{settings.engine.port}"
            yield SharedEngine(url, settings.engine.api_key, settings.engine.model)
        except TimeoutError as error:
            raise BurnishError(f"vLLM did not start; the reason is in {log_file}") from error
        finally:
            supervisor.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await task
