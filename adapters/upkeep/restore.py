"""Restores a backup into an empty place, and moves a journal into another database.

Nothing is overwritten. What is restored gets its name after the journal was committed, so a restore that was
interrupted can be repeated. The serving table is not in a backup: the next start makes it from the journal.
"""

import shutil
import tempfile
from pathlib import Path

from sqlalchemy import text

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import audit
from burnish.adapters.serving.prepare import MODEL
from burnish.adapters.upkeep.backup import ADAPTERS, JOURNAL, KEYS, SEGMENTS, Backup, load
from burnish.adapters.upkeep.copying import Tallies, Tell, compare, copy, is_empty, mark_moved, snapshot, tallies
from burnish.config import Settings
from burnish.errors import AdapterError, JournalError
from burnish.journal import Journal
from burnish.records import VersionName


def restore(settings: Settings, folder: Path, tell: Tell = lambda _: None) -> Backup:
    """Restore the backup in `folder` into the state directory and the journal of `settings`.

    Raises JournalError if either holds something already, if the backup is damaged, or if a later Burnish made it.
    """
    found = load(folder)
    _check_files(found, tell)
    state = settings.state_dir
    if AdapterStore(settings.adapters_dir).highest() or any(settings.segments_dir.glob("*.seg")):
        raise JournalError(f"expected an empty state directory, but {state} has versions or segments; name another one")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    adapters, segments = (
        _copied(folder / ADAPTERS, settings.adapters_dir),
        _copied(folder / SEGMENTS, settings.segments_dir),
    )
    with tempfile.TemporaryDirectory(dir=state, prefix=".restore-") as work:
        shutil.copyfile(folder / JOURNAL, Path(work) / JOURNAL)
        source = Journal.open(f"sqlite:///{Path(work) / JOURNAL}")  # migrates the copy of an older backup
        target = Journal.open(settings.journal_url)
        try:
            expected = found.tables if found.schema == source.revision() else None
            _copy_into(source, target, tell, expected)
        finally:
            source.close()
            target.close()
    if found.journal_id is not None:
        AdapterStore(adapters).bind(found.journal_id)
    _put(adapters, settings.adapters_dir)
    _put(segments, settings.segments_dir)
    for key in (*sorted((folder / KEYS).glob("*.key")), *(folder / KEYS).glob(MODEL)):
        if not (state / key.name).exists():
            shutil.copyfile(key, state / key.name)
            (state / key.name).chmod(0o600)
    return found


def move(source: Journal, target: Journal, tell: Tell = lambda _: None) -> Tallies:
    """Copy all of `source` into the empty `target`, compare, and close `source` for good. Nobody else may use it
    meanwhile. Its rows stay.

    Raises JournalError if others are connected to `source`, or if `target` holds something else.
    """
    if others := _connections(source):
        raise JournalError(
            f"{others} other connections use {source.engine.url!r}; stop every part that works with this journal first"
        )
    found = _copy_into(source, target, tell, None)
    mark_moved(source)
    with target.write() as session:
        audit.record(session, "cli", "move", "journal", repr(source.engine.url), repr(target.engine.url), None)
    return found


def _copy_into(source: Journal, target: Journal, tell: Tell, expected: Tallies | None) -> Tallies:
    """Copy and compare. A target that holds the same rows already is left as it is: an earlier try got so far."""
    with snapshot(source) as rows:
        if is_empty(target):
            tell("copying")
            read = copy(rows, target, tell)
        else:
            tell("comparing with what is there")
            read = tallies(rows, tell)
    if expected is not None and (differing := compare(expected, read)):
        raise JournalError(f"the backup's journal is damaged: {'; '.join(differing)}")
    tell("comparing")
    with snapshot(target) as rows:
        differing = compare(read, tallies(rows, tell))
    if differing:
        raise JournalError(
            f"the journal at {target.engine.url!r} holds something else ({'; '.join(differing)}); "
            "name an empty database"
        )
    return read


def _check_files(found: Backup, tell: Tell) -> None:
    folder = found.path
    for name, size in found.segments.items():
        path = folder / SEGMENTS / name
        if not path.exists() or path.stat().st_size != size:
            raise JournalError(f"the backup is damaged: expected {size} bytes in {path}")
    store = AdapterStore(folder / ADAPTERS)
    for said in found.versions:
        tell(f"checking {said}")
        if (version := VersionName.parse(said)) is None:
            raise JournalError(f"the backup is damaged: {said!r} is no version")
        try:
            store.verify(version.agent, version.version)
        except AdapterError as error:
            raise JournalError(f"the backup is damaged: {error}") from error


def _copied(source: Path, target: Path) -> Path:
    """A copy of `source` beside `target`."""
    aside = target.with_name(f".{target.name}.restored")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside)
    return aside


def _put(aside: Path, target: Path) -> None:
    """Give a copy its name. `target` is empty, or has nothing that a backup holds."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(aside.iterdir()):
        path.replace(target / path.name)
    aside.rmdir()


def _connections(journal: Journal) -> int:
    """Other processes' connections to a PostgreSQL journal. 0 for SQLite: a lock says whether a server runs."""
    if journal.has_one_writer:
        return 0
    with journal.read() as session:
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return int(session.connection().execute(text(others)).scalar_one())
