"""The judging pool: `judge.pool` judges in parallel, as processes here or as actors of a Ray cluster, restarted if they
die.

Each runs `burnish.judges.process.run`. They share only the journal, and its leases make sure that each turn is judged
once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping

from burnish import config, logs
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.files import write_privately
from burnish.processes.ray_actors import LOCAL, RayLauncher
from burnish.processes.supervisor import Launcher, LocalLauncher, Part, Supervisor


def judge(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """One judge, until `is_stopping()`. A process and an actor both run it."""
    from burnish.judges.process import run
    from burnish.keys import engine_key

    logs.configure(settings.log_format, "judge")
    write_privately()
    asyncio.run(run(settings, settings.engine_urls[0], engine_key(settings), is_stopping))


def is_pool(settings: Settings) -> bool:
    return settings.judge.pool > 1 or bool(settings.judge.ray)


def parts(settings: Settings, environment: Mapping[str, str]) -> list[Part]:
    """The judges of the pool as parts, each with a pool of one."""
    alone = settings.model_copy(update={"judge": settings.judge.model_copy(update={"pool": 1, "ray": ""})})
    child = {**environment, **config.to_environment(alone), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "burnish", "run", "judge"]
    return [Part(f"judge-{number}", command, child) for number in range(1, settings.judge.pool + 1)]


def run(settings: Settings, emit: Callable[[str, str], None]) -> None:
    """Keep the pool running until SIGINT or SIGTERM. Raises ConfigError if it cannot work."""
    check(settings)
    members = parts(settings, os.environ)
    if not settings.judge.ray:
        asyncio.run(_keep(members, LocalLauncher(emit)))
        return
    with RayLauncher(settings.judge.ray, judge) as launcher:
        asyncio.run(_keep(members, launcher))


def check(settings: Settings) -> None:
    """Raises ConfigError if actors on other machines could not reach what they need."""
    if settings.judge.ray in ("", LOCAL):
        return
    if settings.journal_url.startswith("sqlite"):
        raise ConfigError(
            "judge.ray: actors on other machines cannot open a journal in a local file; "
            "set journal.url to a PostgreSQL database, or judge.ray to `local`"
        )
    if not settings.judge.model and not settings.engine.urls:
        raise ConfigError(
            "judge.ray: actors on other machines cannot reach an engine on this one's loopback; "
            "set engine.urls and engine.api_key, or judge.model"
        )


async def _keep(members: list[Part], launcher: Launcher) -> None:
    supervisor = Supervisor(members, launcher)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()
