"""`burnish adapters`: list and show versions, promote one, roll back."""

import time
from typing import Annotated, Any

import typer
from rich.table import Table

from adapters import registry
from burnish.cli.common import AsJson, ConfigFile, StateDir, load_settings, out, print_json
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import VersionRow

app = typer.Typer(help="List and show adapter versions; promote one; roll back.", no_args_is_help=True)
AgentName = Annotated[str | None, typer.Option("--agent", help="Agent (default: the configured one).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str | None, typer.Option(help="Why; kept in the audit log.")]


def _open(file: Any, state: Any, agent: str | None) -> tuple[Settings, Journal, str]:
    from server.prepare import prepare

    settings = load_settings(file, None, state)
    return settings, prepare(settings), agent or settings.agent.name


def describe(row: VersionRow) -> dict[str, Any]:
    """A version as the CLI and the admin API show it."""
    return row.model_dump(mode="json")


@app.command("list")
def list_(agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """List an agent's versions, newest last."""
    _, journal, name = _open(file, state, agent)
    with journal.read() as session:
        live = registry.alias(session, name)
        previous = registry.alias(session, name, registry.PREVIOUS)
        rows = registry.versions(session, name)
    if as_json:
        print_json({"agent": name, "live": live, "previous": previous, "versions": [describe(row) for row in rows]})
        return
    table = Table("version", "state", "alias", "parent", "made", "reason", title=f"agent {name}")
    table.add_row("v0", "base", "live" if not live else "previous" if previous == 0 else "", "", "", "the frozen base")
    for row in rows:
        aliases = [text for text, number in (("live", live), ("previous", previous)) if number == row.version]
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created_at))
        table.add_row(f"v{row.version}", row.state, " ".join(aliases), f"v{row.parent}", made, row.reason or "")
    out.print(table)


@app.command()
def show(
    version: int, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show one version: its evidence and its manifest."""
    from adapters.store import AdapterStore

    settings, journal, name = _open(file, state, agent)
    with journal.read() as session:
        row = registry.version(session, name, version)
    manifest = AdapterStore(settings.adapters_dir).manifest(name, version)
    if as_json:
        print_json({**describe(row), "manifest": manifest})
        return
    table = Table(show_header=False, title=f"{name}@v{version}")
    for key, value in {**describe(row), **{f"manifest {k}": v for k, v in manifest.items()}}.items():
        table.add_row(key, str(value))
    out.print(table)


@app.command()
def promote(
    version: int,
    agent: AgentName = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Make a version live (0 = the frozen base). One that the engine has not loaded is loaded first."""
    from server.release import promote as release

    settings, journal, name = _open(file, state, agent)
    if not yes:
        typer.confirm(f"Make {name}@v{version} live?", abort=True)
    out.print(release(settings, journal, name, version, actor="cli", reason=reason))


@app.command()
def rollback(
    to: Annotated[int | None, typer.Option(help="Version to go back to (default: the previous one).")] = None,
    agent: AgentName = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Go back to the previous version, or to the one named."""
    from server.release import rollback as release

    settings, journal, name = _open(file, state, agent)
    if not yes:
        typer.confirm(f"Roll {name} back?", abort=True)
    out.print(release(settings, journal, name, to=to, actor="cli", reason=reason))
