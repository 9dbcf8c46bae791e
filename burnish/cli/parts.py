"""One verb per part, so that each also runs alone: engine, gateway, remote, ingester, swapper, judge, learner."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import typer

from burnish import config, logs
from burnish.cli.common import ConfigFile, Overrides, load_settings
from burnish.stack import DESCRIPTIONS


class Stopping:
    """True once SIGTERM or SIGINT has come."""

    def __init__(self) -> None:
        self._is_stopping = False
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._stop)

    def __call__(self) -> bool:
        return self._is_stopping

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True


def register(app: typer.Typer) -> None:
    """Add a verb per part."""
    for name, description in DESCRIPTIONS.items():
        app.command(name, help=description, rich_help_panel="Parts, one by one")(_verb(name))


def _verb(name: str) -> Callable[[Path | None, list[str] | None], None]:
    def run(file: ConfigFile = None, overrides: Overrides = None) -> None:
        settings = load_settings(file, overrides)
        logs.configure(settings.log_format, name)
        _RUNNERS[name](settings)

    return run


def _engine(settings: config.Settings) -> None:
    from server import launch
    from server.prepare import prepare

    launch.check_model(settings)
    prepare(settings).close()
    launch.execute(settings)


def _gateway(settings: config.Settings) -> None:
    from server.admin import admin_app
    from server.gateway import run
    from server.prepare import prepare

    run(settings, fallback=admin_app(settings, prepare(settings)))


def _remote(settings: config.Settings) -> None:
    from server.prepare import prepare
    from server.remote import run

    prepare(settings).close()
    run(settings)


def _ingester(settings: config.Settings) -> None:
    from server.ingest import Ingester
    from server.prepare import prepare

    stopping = Stopping()
    chosen = settings.journal
    ingester = Ingester(prepare(settings), settings.segments_dir, session_ttl=chosen.session_ttl, verifiers=chosen.verifiers)
    ingester.run_forever(settings.journal.poll_interval, stopping)


def _swapper(settings: config.Settings) -> None:
    from server.swap import run

    stopping = Stopping()
    asyncio.run(run(settings, stopping))


def _judge(settings: config.Settings) -> None:
    from judges.main import run
    from server.launch import engine_key, engine_urls

    stopping = Stopping()
    asyncio.run(run(settings, engine_urls(settings)[0], engine_key(settings), stopping))


def _learner(settings: config.Settings) -> None:
    from learner.main import run

    stopping = Stopping()
    run(settings, stopping)


_RUNNERS: dict[str, Callable[[config.Settings], None]] = {
    "engine": _engine,
    "gateway": _gateway,
    "remote": _remote,
    "ingester": _ingester,
    "swapper": _swapper,
    "judge": _judge,
    "learner": _learner,
}
