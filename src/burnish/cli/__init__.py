"""The `burnish` command. Each noun with its verbs is a file. Each verb does its heavy imports itself.

`PANELS` is the whole top level, in the order of its help page.
"""

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from burnish import __version__, logs
from burnish.cli import (
    agents,
    canary,
    demo,
    doctor,
    journal,
    judges,
    keys,
    learner,
    models,
    parts,
    privacy,
    settings,
    turns,
    ui,
    up,
    versions,
)
from burnish.cli.common import console, example
from burnish.errors import BurnishError

PANELS: dict[str, dict[str, typer.Typer | tuple[Callable[..., None], str]]] = {
    "Start": {
        "doctor": (doctor.doctor, "doctor"),
        "demo": (demo.demo, "demo --seed 1"),
        "models": models.app,
        "up": (up.up, "up --set gateway.port=8700"),
        "ui": (ui.ui, "ui --link"),
        "status": (up.status, "status --json"),
        "config": (settings.config, "config --set learner.min_rows=8"),
    },
    "Use": {"turns": turns.app, "keys": keys.app, "agents": agents.app},
    "Learn": {"learner": learner.app, "judges": judges.app},
    "Release": {
        "versions": versions.app,
        "promote": (versions.promote, "promote 3 --expected 2 --reason better"),
        "rollback": (versions.rollback, "rollback --yes --reason worse"),
        "canary": canary.app,
    },
    "Operate": {
        "run": parts.app,
        "journal": journal.app,
        "privacy": privacy.app,
        "export": (turns.export, "export --format dpo --since 7d --output rows.jsonl"),
        "audit": (turns.audit, "audit --action promote --limit 5"),
    },
}


class InPanels(TyperGroup):
    """A command group that lists commands in the order of `PANELS`. Typer would put plain commands before groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for panel in PANELS.values() for name in panel]


app = typer.Typer(
    name="burnish",
    cls=InPanels,
    help="An agent server that trains while it serves.",
    epilog=example("doctor", "up", "versions list", "run gateway")
    + "\n\nExit status: 0 done, 1 an error or a refusal (one line says what to do), 2 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _panel, _verbs in PANELS.items():
    for _name, _verb in _verbs.items():
        if isinstance(_verb, typer.Typer):
            app.add_typer(_verb, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel, epilog=example(_verb[1]))(_verb[0])


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """An agent server that trains while it serves."""
    if version:
        typer.echo(f"burnish {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command. An expected error is one readable message and exit status 1."""
    logs.configure("console")  # structlog's own set-up prints local variables
    try:
        app()
    except BurnishError as error:
        console.print(f"[bold red]burnish:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
