"""What every verb shares: the console, the options that choose settings, and a client for a running server's admin API."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from burnish import config
from burnish.errors import ConfigError

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
    flags: dict[str, Any] = {}
    for text in overrides or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set expects KEY=VALUE, got {text!r}")
        try:
            flags[key] = json.loads(value)
        except ValueError:
            flags[key] = value
    if state is not None:
        flags["state_dir"] = state
    return config.load(file, flags)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))
