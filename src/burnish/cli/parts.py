"""`burnish run PART`: run one part alone, in a container or on its own machine."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from burnish import config, logs
from burnish.adapters import model_files
from burnish.cli.common import ConfigFile, Overrides, StateDir, example, load_settings
from burnish.errors import ConfigError
from burnish.processes.beats import Beat
from burnish.processes.parts import DESCRIPTIONS, listening
from burnish.processes.supervisor import SPARE

LOOK = 0.5
app = typer.Typer(
    help="Run one part alone until it is stopped.",
    epilog=example("run gateway", "run engine --set engine.port=8711"),
    no_args_is_help=True,
)


class Stopping:
    """A flag that turns true at SIGTERM or SIGINT. Every look at it is a sign of life for the supervisor."""

    def __init__(self, run_dir: Path) -> None:
        self._is_stopping = False
        self._beat = Beat(run_dir)
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._stop)

    def __call__(self) -> bool:
        self._beat()
        return self._is_stopping

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True


def _command(part: str) -> Callable[[Path | None, list[str] | None, Path | None, bool], None]:
    def run(
        file: ConfigFile = None,
        overrides: Overrides = None,
        state: StateDir = None,
        spare: Annotated[bool, typer.Option(SPARE, hidden=True, help="Load, then wait for a line of input.")] = False,
    ) -> None:
        settings = load_settings(file, overrides, state)
        logs.configure(settings.log_format, part)
        if spare:
            _LOADS[part]()
            if not sys.stdin.readline():
                return  # the supervisor has ended
        _RUNNERS[part](settings)

    return run


def _load_gateway() -> None:
    import burnish.adapters.serving.prepare
    import burnish.server.gateway.admin
    import burnish.server.gateway.process  # noqa: F401


def _engine(settings: config.Settings) -> None:
    from burnish.adapters.serving.prepare import make_folders
    from burnish.processes import vllm_server

    vllm_server.check_model(settings)
    make_folders(settings)
    if not settings.engine.urls:
        listening(settings.engine.host, settings.engine.port, "engine.port").close()
    vllm_server.execute(settings)


def _gateway(settings: config.Settings) -> None:
    from burnish.adapters.serving.prepare import prepare_serving
    from burnish.server.gateway.admin import admin_app
    from burnish.server.gateway.process import run

    if settings.gateway.processes == 1:  # several share the port
        listening(settings.gateway.host, settings.gateway.port, "gateway.port").close()
    run(settings, fallback=admin_app(settings, prepare_serving(settings)))


def _remote(settings: config.Settings) -> None:
    from burnish.adapters.serving.prepare import make_folders
    from burnish.server.gateway.remote_process import run

    make_folders(settings)
    run(settings)


_RARELY = (50_000, 20, 100)
"""Python's search for reference cycles takes 3 to 20 % of the ingester's time by default, and records have none."""


def _ingester(settings: config.Settings) -> None:
    from burnish.adapters.serving.prepare import prepare
    from burnish.files import hold
    from burnish.server.ingest.ingester import LOCK, Ingester

    stopping = Stopping(settings.run_dir)
    gc.freeze()
    gc.set_threshold(*_RARELY)
    journal = prepare(settings)
    journal.hold_pages()
    while not stopping():
        try:
            hold(settings.run_dir / LOCK)
        except BlockingIOError:  # `burnish privacy forget` is at work in this one's place
            time.sleep(LOOK)
            continue
        Ingester.of(settings, journal).run_forever(stopping)


def _swapper(settings: config.Settings) -> None:
    from burnish.server.rollout.process import NICENESS, run

    stopping = Stopping(settings.run_dir)
    os.nice(NICENESS)
    asyncio.run(run(settings, stopping))


def _judge(settings: config.Settings) -> None:
    from burnish.processes import judge_pool

    if judge_pool.is_pool(settings):
        judge_pool.run(settings, lambda part, line: typer.echo(f"{part} │ {line}"))
    else:
        judge_pool.judge(settings, Stopping(settings.run_dir))


def _learner(settings: config.Settings) -> None:
    if (lack := model_files.lack(settings.engine.model)) is not None:
        raise ConfigError(f"engine.model: {lack.sentence}")
    from burnish.learner.run.process import run
    from burnish.learner.run.throttle import lower_priority

    stopping = Stopping(settings.run_dir)
    lower_priority()
    run(settings, stopping)


def _ui(settings: config.Settings) -> None:
    from burnish.cli.ui import serve

    serve(settings)


_LOADS = {"gateway": _load_gateway}
"""What the spares of parts load before their turn comes."""
_RUNNERS: dict[str, Callable[[config.Settings], None]] = {
    "engine": _engine,
    "gateway": _gateway,
    "remote": _remote,
    "ingester": _ingester,
    "swapper": _swapper,
    "judge": _judge,
    "learner": _learner,
    "ui": _ui,
}

for _name, _description in DESCRIPTIONS.items():
    app.command(_name, help=_description, epilog=example(f"run {_name} --config burnish.toml"))(_command(_name))
