"""The console, the options and the helpers that all commands share."""

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment

from burnish import config
from burnish.errors import BurnishError, ConfigError, NotFound
from burnish.files import write_privately
from burnish.journal import Journal

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
WIDE = 10_000
"""Columns of an output that is no terminal. A program or a file has room for whole lines."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """The text without control characters except tab and newline: they would set titles, clear the screen, or hide
    lines.
    """
    return _CONTROLS.sub("", text)


class Terminal(Console):
    """A console on which nothing recorded can control the terminal, whatever prints it. Elsewhere it is `WIDE`, unless
    the variable COLUMNS says otherwise.
    """

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        found = super().size
        is_given = self.is_terminal or self._width is not None or "COLUMNS" in os.environ
        return found if is_given else ConsoleDimensions(WIDE, found.height)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


console = Terminal(stderr=True)
out = Terminal()


def _made_version(number: int) -> int:
    """`number`. Raises NotFound for the base."""
    if number == 0:
        raise NotFound("v0 is the frozen base: no step made it, and it has no files; name a version from 1 on")
    return number


ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file (default: burnish.toml).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting; repeatable.")
]
StateDir = Annotated[Path | None, typer.Option("--state", help="State directory (default: .burnish).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table or a line.")]
AgentName = Annotated[str | None, typer.Option("--agent", help="Agent (default: the configured one).")]
EveryAgent = Annotated[str | None, typer.Option("--agent", help="Only this agent (default: all).")]
Version = Annotated[int, typer.Argument(min=0, callback=_made_version, help="Version number, 12 for agent@v12.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit log.")]
Expected = Annotated[
    int | None, typer.Option("--expected", min=0, help="Act only if this version is live; otherwise say which one is.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Number of rows, newest first.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only after this time: 2026-11-21, 2026-11-21T18:00, or 90m, 12h, 7d ago.")
]


def load_settings(file: Path | None, overrides: list[str] | None = None, state: Path | None = None) -> config.Settings:
    """Settings from the file, the environment and the flags. What the command writes is its user's alone.

    If they name no model, it is the one that `burnish up` served last from the state directory.
    """
    write_privately()
    flags = pairs(overrides)
    if state is not None:
        flags["state_dir"] = state
    settings = config.load(file, flags)
    model = _model(settings, is_given="engine.model" in flags)
    return settings if model is None else config.load(file, flags | {"engine.model": model})


def _model(settings: config.Settings, *, is_given: bool) -> str | None:
    """The model in place of the one in `settings`, if it is another: the directory's own, or a known model's directory.

    Raises ConfigError for a known model that has not been fetched.
    """
    name = settings.engine.model
    if settings.uses_sandbox and not is_given:
        from burnish.adapters.serving.prepare import noted_model

        return noted_model(settings)
    if "/" in name or Path(name).exists():
        return None
    from burnish.learner import known_models

    if name not in known_models.KNOWN:
        return None
    if (folder := known_models.directory(name)) is None:
        raise ConfigError(f"engine.model: {name} is not here yet; `burnish models fetch {name}` gets it")
    return str(folder)


def pairs(texts: list[str] | None) -> dict[str, Any]:
    """The settings that `--set KEY=VALUE` names. A value that is JSON is read as JSON. Raises ConfigError without
    `=`."""
    found: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected KEY=VALUE, got {text!r}; write for example --set learner.min_rows=8")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def example(*commands: str) -> str:
    """The end of a help page: commands to copy, one a line. The lines hold no brackets, because rich would read
    them."""
    return "\n".join(("Example:", *(f"$ burnish {command}" for command in commands)))


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def prepared(file: Path | None, state: Path | None, agent: str | None) -> tuple[config.Settings, Journal, str]:
    """`existing`, with a journal and a serving table that are up to date."""
    from burnish.adapters.serving.prepare import prepare

    settings, journal, name = existing(file, state, agent)
    journal.close()
    return settings, prepare(settings), name


def existing(file: Path | None, state: Path | None, agent: str | None) -> tuple[config.Settings, Journal, str]:
    """The settings, the journal and the chosen agent. Raises ConfigError or JournalError if there is no journal."""
    settings = load_settings(file, None, state)
    check_state(settings)
    return settings, Journal.open(settings.journal_url, migrate=False), agent or settings.agent.name


def counted(n: int, what: str) -> str:
    """`1 turn`, `2,000 turns`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def has_state(settings: config.Settings) -> bool:
    """True if there is a journal here, or a setting says where else it is."""
    return bool(settings.journal.url) or (settings.state_dir / "journal.db").exists()


def check_state(settings: config.Settings) -> None:
    """Raises ConfigError if no server has used the state directory. Nothing is made there."""
    if not has_state(settings):
        folder = settings.state_dir
        raise ConfigError(
            f"state_dir: no journal in {folder}; name the server's directory with --state, or start a server on this "
            f"one with `burnish up --state {folder}`"
        )


def when(at: float | None) -> str:
    """A time for people to read."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""


def moment(text: str | None, now: float | None = None) -> float | None:
    """Seconds since the epoch of a local time (`2026-11-21`, `2026-11-21T18:00`) or of an age (`90m`, `12h`, `7d`).

    Raises ConfigError for anything else.
    """
    if text is None:
        return None
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip()):
        return (time.time() if now is None else now) - float(match[1]) * _SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise ConfigError(
            f"expected a time (2026-11-21, 2026-11-21T18:00) or an age (90m, 12h, 7d), got {text!r}"
        ) from None


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal unless `yes` is given. Raises Abort after a no, BurnishError if nobody can answer."""
    if yes:
        return
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)  # the question's line has no end yet
        raise BurnishError("expected y or n, got no answer; use --yes to skip the question") from None
    if not sys.stdin.isatty():
        typer.echo(err=True)
    if not is_confirmed:
        raise typer.Abort


def answer(status: str, tree: dict[str, Any], as_json: bool) -> None:
    """Print what a verb did: one line for people, or JSON with the line as `status`."""
    if as_json:
        print_json({"status": status, **tree})
    else:
        out.print(status, highlight=False, soft_wrap=True)


def ask_gateway(settings: config.Settings, path: str, body: dict[str, Any], *, seconds: float = 20.0) -> dict[str, Any]:
    """The running gateway's answer to the admin key. Raises BurnishError if it refuses or does not answer."""
    from burnish.adapters.serving.prepare import admin_key_file
    from burnish.processes.parts import gateway_url

    file, url = admin_key_file(settings), gateway_url(settings)
    try:
        key = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}; `burnish up` makes it") from error
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    asked = urllib.request.Request(f"{url}{path}", data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=seconds) as told:
            answered: dict[str, Any] = json.load(told)
            return answered
    except urllib.error.HTTPError as error:
        raise BurnishError(json.load(error)["error"]["message"]) from error
    except OSError as error:
        raise BurnishError(f"the gateway at {url} does not answer; is `burnish up` running?") from error


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Write lines to a new file, whole or not at all, or to the terminal. Raises ConfigError if the file exists or
    cannot be made.
    """
    if output is None:
        for line in lines:
            typer.echo(visible(line) if sys.stdout.isatty() else line, nl=False)
        return
    if output.exists():
        raise ConfigError(f"--output: expected a new file, but {output} exists; choose another name")
    aside = output.with_name(f".{output.name}.tmp")
    n_rows = 0
    try:
        stream = aside.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--output: cannot write {output}: {error.strerror}; name a file in a folder that you can write to"
        ) from error
    with stream:
        for line in lines:
            stream.write(line)
            n_rows += 1
    aside.rename(output)
    out.print(f"{counted(n_rows, 'row')} in {output}", highlight=False, soft_wrap=True)
