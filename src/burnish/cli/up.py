"""`burnish up`: all parts on one machine, in one terminal. `burnish status`: their state."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.text import Text
from sqlalchemy.exc import SQLAlchemyError

from burnish import logs
from burnish.adapters.registry.learning_state import LearningState, learning_state
from burnish.cli.common import AsJson, ConfigFile, Overrides, StateDir, console, load_settings, out, print_json
from burnish.cli.tables import facts
from burnish.cli.ui import one_time_link
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.files import LOW_DISK, hold, is_held, low_disk, read_json
from burnish.processes.parts import gateway_url, parts_of
from burnish.processes.supervisor import LocalLauncher, Supervisor
from burnish.segments.file import aside_of
from burnish.server.gateway.access.host_guard import may_be_open

LOOK_SECONDS = 5.0
LONGEST_SILENCE = 60.0
"""Seconds after which learning is looked at again although the journal has not changed."""
READY_SECONDS = 3.0
"""Seconds for which `burnish status` waits for the gateway."""
LOCK = "up.lock"
"""Held by the supervisor, in `run/`."""
_COUNTS = re.compile(r", for \d+ s|\d+ replies ")
"""What grows by itself, left out of a comparison of two sentences."""
COLOURS = {
    "engine": "magenta",
    "gateway": "green",
    "ingester": "blue",
    "swapper": "cyan",
    "judge": "yellow",
    "learner": "bright_red",
    "ui": "bright_blue",
}


def up(file: ConfigFile = None, overrides: Overrides = None, state: StateDir = None) -> None:
    """Start engine, gateway, ingester, swapper, judge, learner and pages, and keep them running until Ctrl-C."""
    settings = load_settings(file, overrides, state)
    logs.configure(settings.log_format, "up")
    with alone(settings):
        check_start(settings)
        asyncio.run(_up(settings))


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep the state directory to one supervisor. Raises ConfigError if another one runs on it."""
    try:
        settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = hold(settings.run_dir / LOCK)
    except BlockingIOError as error:
        raise _taken(settings) from error
    except OSError as error:
        raise ConfigError(f"state_dir: cannot write to {settings.state_dir}: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(lock)


def check_alone(settings: Settings) -> None:
    """Raises ConfigError if a supervisor runs on the state directory."""
    if is_held(settings.run_dir / LOCK):
        raise _taken(settings)


def _taken(settings: Settings) -> ConfigError:
    return ConfigError(
        f"state_dir: `burnish up` runs on {settings.state_dir} already; stop it, or name another directory with --state"
    )


def check_start(settings: Settings) -> None:
    """Exit with one readable line if the start would fail. Say what the model cannot do."""
    from burnish.adapters.serving.prepare import note_model, prepare_serving
    from burnish.cli.doctor import faults, warnings_of_model

    for fault in faults(settings):
        console.print(f"[bold red]burnish:[/] {fault}", highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    for warning in warnings_of_model(settings):
        console.print(f"[yellow]burnish:[/] {warning}", highlight=False, soft_wrap=True)
    prepare_serving(settings).close()
    note_model(settings)


async def _up(settings: Settings) -> None:
    def emit(part: str, line: str) -> None:
        if part != "engine" or not supervisor.is_stopping:  # vLLM reports leaks at its end that nobody can mend
            _emit(part, line)

    supervisor = Supervisor(parts_of(settings, os.environ), LocalLauncher(emit))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    told = [asyncio.create_task(_greet(settings, supervisor)), asyncio.create_task(_tell_learning(settings))]
    await supervisor.run()
    for task in told:
        task.cancel()
    await asyncio.gather(*told, return_exceptions=True)
    console.print("burnish: all parts have ended", style="dim")


async def _greet(settings: Settings, supervisor: Supervisor) -> None:
    model = "the toy model" if settings.uses_sandbox else settings.engine.model
    console.print(
        f"burnish: starting with {model}; it takes half a minute or more to load", style="dim", soft_wrap=True
    )
    await supervisor.wait_ready([name for name in supervisor.states if name != "ui"])
    pages = f"Look inside (signs in once): [bold]{one_time_link(settings)}[/]\n" if settings.gateway.ui_port else ""
    console.print(
        f"\n[bold green]Ready.[/] Point your client at [bold]{gateway_url(settings)}/v1[/], model "
        f"[bold]{settings.agent.name}[/].\n"
        f"{pages}{_door(settings)}"
        f"Admin key: {settings.state_dir / 'admin.key'}   Ctrl-C ends all parts.\n",
        highlight=False,
        soft_wrap=True,
    )


def _door(settings: Settings) -> str:
    """Who needs no key, for the greeting."""
    if not may_be_open(settings.gateway):
        return "Every request needs a key: burnish keys create --scope inference\n"
    return "Programs of your user need no key. Behind a proxy that you run, set gateway.open_inference=false.\n"


async def _tell_learning(settings: Settings) -> None:
    """Say what learning is doing, whenever that changes."""
    from burnish.journal import Journal
    from burnish.journal.changes import Rest

    journal, shown = Journal.at(settings.journal_url), ""
    rest = Rest(journal.changes, LONGEST_SILENCE)

    def look() -> LearningState:
        with journal.read() as session:
            return learning_state(session, settings, settings.agent.name)

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not rest.is_over():
            continue
        rest.begin()
        try:
            found = await asyncio.to_thread(look)
        except SQLAlchemyError:
            continue  # the parts report it
        kind = _COUNTS.sub("", found.sentence)
        if kind != shown:
            shown = kind
            _emit("learning", found.sentence)


def _emit(part: str, line: str) -> None:
    prefix = Text(f"{part:>8} │ ", style=COLOURS.get(part, "white"))
    out.print(prefix + Text.from_ansi(line), soft_wrap=True)


def _serving_fault(settings: Settings) -> str | None:
    """Why clients are not answered now. None if they are."""
    url = gateway_url(settings)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/readyz", timeout=READY_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        with error, contextlib.suppress(ValueError, KeyError, TypeError):
            return f"the gateway at {url} is not ready: {', '.join(json.load(error)['warnings'])}"
        return f"something else than a gateway answers at {url}; see gateway.port"
    except (OSError, http.client.HTTPException):
        return f"no gateway answers at {url}; is `burnish up` running?"


def status(
    file: ConfigFile = None, overrides: Overrides = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show what learning is doing, whether the agent got better, its worst slice, the live version, and the queues."""
    settings = load_settings(file, overrides, state)
    from burnish.adapters.registry import lifecycle
    from burnish.adapters.verbs.canary import by_slice
    from burnish.journal import Journal
    from burnish.journal.listing.figures import progress, scores
    from burnish.journal.summary import summary
    from burnish.segments.lag import LATE, WAITING, lag

    with Journal.open(settings.journal_url, migrate=False).read() as session:
        figures = summary(session, settings.agent.name)
        learning = learning_state(session, settings, settings.agent.name)
        figures["learning"] = learning.sentence
        figures["learning_alarm"] = learning.is_alarm
        figures["ingest_lag"] = round(lag(session, settings.segments_dir, time.time()), 1)
        figures["ingest_alarm"] = figures["ingest_lag"] > LATE
        live, slices = lifecycle.alias(session, settings.agent.name), by_slice(session, settings.agent.name)
        better = progress(scores(session, settings.agent.name), live)
        figures["progress"] = better["sentence"] if better is not None else None
        figures["worst_slice"] = slices["worst"] if slices is not None else None
    table = read_json(settings.run_dir / "routes.json")
    figures["loaded"] = (
        next((a["loaded"] for a in table["agents"] if a["name"] == settings.agent.name), []) if table else []
    )
    fault = _serving_fault(settings)
    figures["serving"] = fault or "ready"
    figures["set_aside"] = len(list(aside_of(settings.segments_dir).glob("*.seg")))
    figures["low_disk_gb"] = low_disk(settings.state_dir)
    if as_json:
        print_json(figures)
        return
    if fault is not None:
        out.print(Text(fault, style="bold red"), soft_wrap=True)
    out.print(Text(learning.sentence, style="bold red" if learning.is_alarm else "bold"), soft_wrap=True)
    if figures["low_disk_gb"] is not None:
        out.print(Text(LOW_DISK.format(figures["low_disk_gb"]), style="bold red"), soft_wrap=True)
    if figures["ingest_alarm"]:
        out.print(Text(WAITING.format(figures["ingest_lag"]), style="bold red"), soft_wrap=True)
    told = {name: value for name, value in figures.items() if name not in ("learning", "serving")}
    out.print(facts(f"agent {settings.agent.name}", told))
