"""The `burnish` command. Each group of verbs is a file; heavy imports happen inside the verb that needs them."""

import sys

import typer

from burnish import __version__
from burnish.cli import (
    agents,
    canary,
    demo,
    doctor,
    judges,
    keys,
    learner,
    parts,
    records,
    releases,
    settings,
    turns,
    up,
    versions,
)
from burnish.cli.common import console
from burnish.errors import BurnishError

app = typer.Typer(
    name="burnish",
    help="An agent server that trains while it serves.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(up.up)
app.command("status")(up.status)
app.command("doctor")(doctor.doctor)
app.command("config")(settings.config)
app.command("demo")(demo.demo)
app.add_typer(agents.app, name="agents")
app.add_typer(versions.app, name="versions")
app.add_typer(versions.app, name="adapters", hidden=True)  # the name of earlier releases
for verb in (releases.promote, releases.rollback, releases.release, records.why, records.export, records.audit):
    app.command(verb.__name__)(verb)
app.add_typer(canary.app, name="canary")
app.add_typer(judges.app, name="judges")
app.add_typer(keys.app, name="keys")
app.add_typer(learner.app, name="learner")
app.command("learn")(learner.learn)
app.add_typer(turns.app, name="turns")
app.add_typer(parts.app, name="run")


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    """An agent server that trains while it serves."""
    if version:
        typer.echo(f"burnish {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; an expected error is one readable message and exit status 1."""
    try:
        app()
    except BurnishError as error:
        console.print(f"[bold red]burnish:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
