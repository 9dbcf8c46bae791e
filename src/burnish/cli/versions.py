"""`burnish versions`: what exists and where it comes from; pins, imports, exports, and the files of old ones."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from burnish.adapters.registry import lifecycle, versions
from burnish.adapters.registry.lineage import aliases_of, lineage
from burnish.adapters.verbs.answers import imported, pinned
from burnish.cli import version_tables as tables
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Overrides,
    Reason,
    StateDir,
    Yes,
    answer,
    console,
    load_settings,
    out,
    prepared,
    print_json,
)
from burnish.cli.releases import promote, rollback
from burnish.journal.tables import VersionRow

app = typer.Typer(
    help="Adapter versions: list, show, lineage, pin, import, export, remove old ones.", no_args_is_help=True
)
Version = Annotated[int, typer.Argument(min=1, help="Version number, 12 for agent@v12.")]


def describe(row: VersionRow) -> dict[str, Any]:
    """A version as the CLI and the admin API show it."""
    return row.model_dump(mode="json")


@app.command("list")
def list_(agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """List an agent's versions, newest last."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        live = lifecycle.alias(session, name)
        previous = lifecycle.alias(session, name, lifecycle.PREVIOUS)
        pointed = aliases_of(session, name)
        rows = lifecycle.versions(session, name)
    if as_json:
        shown = [{**describe(row), "aliases": pointed.get(row.version, [])} for row in rows]
        print_json({"agent": name, "live": live, "previous": previous, "versions": shown})
    else:
        out.print(tables.listed(name, rows, pointed))


@app.command()
def show(
    version: Version, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show one version: its evidence and its manifest."""
    from burnish.adapters.files.store import AdapterStore

    settings, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        row = lifecycle.version(session, name, version)
    manifest = AdapterStore.of(settings).manifest(name, version) if row.removed_at is None else {}
    if as_json:
        print_json({**describe(row), "manifest": manifest})
        return
    table = Table(show_header=False, title=f"{name}@v{version}")
    for key, value in {**describe(row), **{f"manifest {k}": v for k, v in manifest.items()}}.items():
        table.add_row(key, escape(str(value)))
    out.print(table)


@app.command("lineage")
def lineage_(
    version: Version, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Tell a version's whole story: rows, step, ancestors, what it had to show, when it was live."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        told = lineage(session, name, version)
    print_json(told) if as_json else out.print(tables.story(told))


@app.command()
def pin(
    version: Version,
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep a version's files whatever retention says."""
    _pin(version, True, agent, reason, file, state, as_json)


@app.command()
def unpin(
    version: Version,
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Leave a version's files to retention again."""
    _pin(version, False, agent, reason, file, state, as_json)


@app.command("import")
def import_(
    directory: Annotated[
        Path, typer.Argument(help="Directory that PEFT's save_pretrained made, or an export of Burnish.")
    ],
    agent: AgentName = None,
    any_base: Annotated[
        bool, typer.Option("--any-base", help="Take your word that the adapter belongs to the base that is served.")
    ] = False,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a PEFT adapter a version, a candidate that the gate tries like any other."""
    from burnish.adapters.serving.prepare import prepare
    from burnish.learner.run.adopt import adopt

    settings = load_settings(file, overrides, state)
    name = agent or settings.agent.name
    with console.status("reading the adapter and taking its probe"):
        number, read = adopt(settings, prepare(settings), name, directory, actor="cli", any_base=any_base)
    answer(imported(name, number), {"agent": name, "version": number, "ignored": list(read.ignored)}, as_json)
    if read.ignored and not as_json:
        out.print(f"not read: {', '.join(read.ignored)}", style="dim", highlight=False, soft_wrap=True)


@app.command("export")
def export_(
    version: Version,
    directory: Annotated[Path, typer.Argument(help="New directory to write.")],
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a version as a plain directory that PEFT loads, with its manifest beside it."""
    from burnish.adapters.files.export import export
    from burnish.adapters.files.store import AdapterStore

    settings, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        lifecycle.version(session, name, version)
    written = export(AdapterStore.of(settings), name, version, directory)
    answer(
        f"{name}@v{version} is in {written}", {"agent": name, "version": version, "directory": str(written)}, as_json
    )


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove the files of versions that nobody needs; their records, numbers and spent rows stay."""
    from burnish.adapters.files.retention import FileRetention

    settings, journal, name = prepared(file, state, agent)
    file_retention = FileRetention(settings, journal)
    wanted = file_retention.remove(name, actor="cli", is_dry=True)
    if not dry_run and wanted.plan.remove:
        if not yes:
            typer.confirm(f"Remove the files of {', '.join(f'v{n}' for n in sorted(wanted.plan.remove))}?", abort=True)
        wanted = file_retention.remove(name, actor="cli")
    print_json(wanted.as_dict()) if as_json else out.print(tables.removal(wanted.as_dict()))


app.command("promote")(promote)
app.command("rollback")(rollback)


def _pin(
    version: int,
    is_pinned: bool,
    agent: str | None,
    reason: str | None,
    file: Path | None,
    state: Path | None,
    as_json: bool,
) -> None:
    _, journal, name = prepared(file, state, agent)
    with journal.write() as session:
        is_new = versions.set_pinned(session, name, version, is_pinned, actor="cli", reason=reason)
    tree = {"agent": name, "version": version, "is_pinned": is_pinned}
    answer(pinned(name, version, is_pinned, is_new), tree, as_json)
