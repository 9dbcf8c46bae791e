"""What every verb shares: the console, the options that choose settings, and a client for a running server's admin API."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from burnish import config
from burnish.errors import ConfigError
from burnish.journal import Journal

console = Console(stderr=True)
out = Console()

ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file (default: burnish.toml).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting; repeatable.")
]
StateDir = Annotated[Path | None, typer.Option("--state", help="State directory (default: .burnish).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def load_settings(file: Path | None, overrides: list[str] | None = None, state: Path | None = None) -> config.Settings:
    """Settings from the file, the environment and the flags."""
    flags = pairs(overrides)
    if state is not None:
        flags["state_dir"] = state
    return config.load(file, flags)


def pairs(texts: list[str] | None) -> dict[str, Any]:
    """What `--set KEY=VALUE` names; a value that is JSON is read as such. Raises ConfigError where there is no `=`."""
    found: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set expects KEY=VALUE, got {text!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def example(*commands: str) -> str:
    """The end of a help page: commands to copy, one a line. The lines hold no brackets, which rich would read."""
    return "\n\n".join(("Example:", *(f"$ burnish {command}" for command in commands)))


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


AgentName = Annotated[str | None, typer.Option("--agent", help="Agent (default: the configured one).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit log.")]
Expected = Annotated[
    int | None, typer.Option("--expected", min=0, help="Do it only while this version is live; else say which one is.")
]


def prepared(file: Path | None, state: Path | None, agent: str | None) -> tuple[config.Settings, Journal, str]:
    """Settings, the journal (made where there is none) and the agent that is meant."""
    from burnish.adapters.serving.prepare import prepare

    settings = load_settings(file, None, state)
    return settings, prepare(settings), agent or settings.agent.name


def when(at: float | None) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""


def moment(text: str | None) -> float | None:
    """Seconds since the epoch from `2026-11-21`, `2026-11-21T18:00`, or how long ago: `90m`, `12h`, `7d`."""
    if text is None:
        return None
    units = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
    if text[:-1].isdecimal() and text[-1] in units:
        return time.time() - int(text[:-1]) * units[text[-1]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{text!r} is no time; expected 2026-11-21, 2026-11-21T18:00, or how long ago: 90m, 12h, 7d"
        ) from None


def answer(status: str, tree: dict[str, Any], as_json: bool) -> None:
    """What a verb did: a line for people, or the tree with it."""
    if as_json:
        print_json({"status": status, **tree})
    else:
        out.print(status, highlight=False, soft_wrap=True)
