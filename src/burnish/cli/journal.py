"""`burnish journal`: look after what is recorded."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from burnish.adapters.upkeep.copying import Tell
from burnish.cli.common import (
    AsJson,
    ConfigFile,
    StateDir,
    Yes,
    answer,
    check_state,
    confirm,
    console,
    counted,
    example,
    existing,
    load_settings,
    out,
    print_json,
    when,
)
from burnish.cli.tables import Listing
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.files import hold
from burnish.journal import Journal
from burnish.segments.file import aside_of

TELL_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""
app = typer.Typer(
    help="Look after what is recorded: check, back up, restore, move.",
    epilog=example("journal check", "journal backup /backup/monday"),
    no_args_is_help=True,
)


@app.command(epilog=example("journal check", "journal check --json"))
def check(file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Check the database, texts and prompts of turns, the segments, the versions' files and the serving table.

    The server may run meanwhile. The exit status is 1 if something is wrong.
    """
    from burnish.adapters.upkeep.journal_check import check as look

    settings, journal, _ = existing(file, state, None)
    with closing(journal), _progress() as tell:
        found = look(settings, journal, tell)
    if as_json:
        print_json(found.to_json())
    else:
        seen = ((found.n_turns, "turn"), (found.n_texts, "text"), (found.n_versions, "version"))
        looked = ", ".join(counted(n, what) for n, what in seen)
        waiting = f"{counted(found.n_segments, 'segment')} with {counted(found.n_waiting, 'record')} to be filed"
        out.print(f"looked at {looked}, {waiting}", highlight=False, soft_wrap=True)
        if found.findings:
            table = Listing("part", "what is wrong", "remedy")
            for finding in found.findings:
                table.add_row(finding.part, finding.what, finding.remedy)
            out.print(table)
        else:
            out.print("all is sound", highlight=False)
    if found.findings:
        raise typer.Exit(1)


@app.command(epilog=example("journal vacuum --yes"))
def vacuum(yes: Yes = False, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Remove records and segments that the ingester could not read and has set aside, and give free pages back."""
    settings = load_settings(file, None, state)
    check_state(settings)
    folder = aside_of(settings.segments_dir)
    found = sorted(folder.glob("*.seg"))
    if found:
        confirm(f"Remove {counted(len(found), 'file')} from {folder}? Nobody has read what they hold.", yes)
    for path in found:
        path.unlink(missing_ok=True)
    freed = _compact(settings)
    status = f"removed {counted(len(found), 'file')}, freed {freed / 1e6:,.1f} MB"
    answer(status, {"removed": [path.name for path in found], "freed_bytes": freed}, as_json)


@app.command(epilog=example("journal backup /backup/monday", "journal backup /backup/monday --json"))
def backup(
    folder: Annotated[Path, typer.Argument(help="New folder for the backup.")],
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Back up the journal, the records that wait for it, the versions' files and the keys, as of one moment.

    The server may run meanwhile. The folder is as secret as the state directory. Erasures do not reach it.
    """
    from burnish.adapters.upkeep.backup import make

    settings, journal, _ = existing(file, state, None)
    with closing(journal), _progress() as tell:
        found = make(settings, journal, folder.absolute(), tell)
    n_rows = sum(each.n for each in found.tables.values())
    status = f"{counted(found.n_turns, 'turn')}, {counted(n_rows, 'row')}, {counted(len(found.versions), 'version')}"
    segments = counted(len(found.segments), "segment")
    answer(f"{found.path}: {status}, {segments} with records to be filed", found.to_json(), as_json)


@app.command(epilog=example("journal restore /backup/monday --state .burnish"))
def restore(
    folder: Annotated[Path, typer.Argument(help="The backup.")],
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty state directory and the empty database of `journal.url`.

    Both databases take every backup. A backup of an earlier Burnish is migrated on the way, the backup stays as it is.
    """
    from burnish.adapters.upkeep.restore import restore as put_back

    settings = load_settings(file, None, state)
    with _stopped(settings), _progress() as tell:
        found = put_back(settings, folder.absolute(), tell)
    restored = f"{counted(found.n_turns, 'turn')} and {counted(len(found.versions), 'version')}"
    answer(
        f"restored {restored} of {when(found.created_at)} into {settings.state_dir}; start the server",
        {**found.to_json(), "state_dir": str(settings.state_dir)},
        as_json,
    )


@app.command(
    epilog=example(
        "journal move postgresql+psycopg://burnish@db/burnish", "journal move sqlite:////srv/burnish/journal.db"
    )
)
def move(
    url: Annotated[str, typer.Argument(help="SQLAlchemy URL of an empty database.")],
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Move the journal into another database, SQLite or PostgreSQL. The server is stopped meanwhile.

    Every row is compared afterwards. The old journal keeps its rows, but no Burnish opens it any more. The segments and
    the versions' files stay where they are.
    """
    from burnish.adapters.upkeep.restore import move as carry

    settings, source, _ = existing(file, state, None)
    confirm(f"Move the journal at {source.engine.url!r} to {Journal.at(url).engine.url!r}?", yes)
    with closing(source), _stopped(settings), closing(Journal.open(url)) as target, _progress() as tell:
        tables = carry(source, target, tell)
    n_rows = sum(each.n for each in tables.values())
    answer(
        f"moved {counted(n_rows, 'row')} to {target.engine.url!r}; now set journal.url to it and start the server",
        {"rows": {name: each.n for name, each in tables.items()}, "url": repr(target.engine.url)},
        as_json,
    )


def _compact(settings: Settings) -> int:
    """Rewrite the database. Returns the bytes that it gave back."""
    journal = Journal.open(settings.journal_url, migrate=False)
    try:
        with _progress() as tell:
            tell("rewriting the journal; parts that write to it wait")
            before = journal.size()
            journal.compact()
            return max(0, before - journal.size())
    finally:
        journal.close()


@app.command(epilog=example("journal downgrade 0012"))
def downgrade(
    schema: Annotated[str, typer.Argument(help="Latest schema that the earlier Burnish knows, e.g. 0012.")],
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Bring the journal back to an earlier Burnish's schema, before that one is installed. The server is stopped.

    An earlier Burnish refuses a later journal and says which schema it knows. What only the later one records is lost.
    """
    settings, journal, _ = existing(file, state, None)
    before = journal.revision()
    confirm(f"Bring the journal at {journal.engine.url!r} from the schema {before} back to {schema}?", yes)
    with closing(journal), _stopped(settings):
        journal.downgrade(schema)
    status = f"the schema is {schema} (was {before}); install the earlier Burnish before you start the server"
    answer(status, {"schema": schema, "before": before}, as_json)


@contextmanager
def _stopped(settings: Settings) -> Iterator[None]:
    """Keep parts of this state directory from starting. Raises ConfigError if one runs."""
    from burnish.cli.up import alone
    from burnish.server.ingest.ingester import LOCK

    with alone(settings):
        try:
            lock = hold(settings.run_dir / LOCK)
        except BlockingIOError as error:
            raise ConfigError(f"an ingester runs on {settings.state_dir}; stop it first") from error
        try:
            yield
        finally:
            os.close(lock)


@contextmanager
def _progress() -> Iterator[Tell]:
    """Progress on stderr: one line that changes on a terminal, and now and then a line elsewhere."""
    told_at = time.monotonic()
    with console.status("starting") as status:

        def tell(text: str) -> None:
            nonlocal told_at
            status.update(text)
            if not console.is_terminal and time.monotonic() - told_at > TELL_SECONDS:
                told_at = time.monotonic()
                console.print(text, highlight=False, soft_wrap=True)

        yield tell
