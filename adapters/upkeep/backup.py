"""A backup: one folder with the journal, the records that are not in it yet, and the adapter store, as of one moment.

The server goes on meanwhile. All begins with a snapshot of the journal. A record that had ended by then is in the
snapshot or in a segment that is still there, because a segment stays for a grace time after it was filed. A version's
files are there before its row is. The folder has its name only when it is complete, and every file on the disk.

The journal is copied into an SQLite file, whatever database it is in.
"""

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select
from sqlmodel import col

from burnish import __version__
from burnish.adapters.files.store import PAST, AdapterStore
from burnish.adapters.serving.prepare import MODEL
from burnish.adapters.upkeep.copying import Tally, Tell, compare, copy, snapshot, tallies
from burnish.config import Settings
from burnish.errors import AdapterError, JournalError, SegmentError
from burnish.files import UNREADABLE, read_json, replace_text
from burnish.journal import Journal
from burnish.journal.tables import SegmentRow, VersionRow
from burnish.records import VersionName, VersionState
from burnish.segments.file import aside_of, read

FORMAT = 1
MANIFEST, JOURNAL, SEGMENTS, ADAPTERS, KEYS = "backup.json", "journal.db", "segments", "adapters", "keys"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds. `tables`: the tally of each table. `versions` are names such as agent@v12, `segments` sizes
    in bytes by name.
    """

    path: Path
    created_at: float
    schema: str
    journal_id: str | None
    tables: dict[str, Tally]
    versions: tuple[str, ...]
    segments: dict[str, int]
    burnish: str = __version__

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self), "path": str(self.path)}

    @property
    def n_turns(self) -> int:
        return self.tables.get("interaction", Tally()).n


def make(settings: Settings, journal: Journal, target: Path, tell: Tell = lambda _: None) -> Backup:
    """Back up into the new folder `target`. Raises JournalError if that cannot be done whole."""
    if target.exists():
        raise JournalError(f"expected a new folder, but {target} exists; choose another name")
    aside = target.with_name(f".{target.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(mode=0o700, parents=True)
        found = _fill(settings, journal, aside, target, tell)
        tell("writing it to the disk")
        _sync_all(aside)
        aside.rename(target)
        _sync(target.parent)
    except OSError as error:
        raise JournalError(f"cannot write the backup {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return found


def load(folder: Path) -> Backup:
    """What the backup in `folder` says of itself. Raises JournalError if it is none, or of a later format."""
    try:
        tree = read_json(folder / MANIFEST)
        if tree is None:
            raise JournalError(f"{folder} is no backup: it has no {MANIFEST}; `burnish journal backup` makes one")
        if tree["format"] > FORMAT:
            raise JournalError(
                f"{folder} has the format {tree['format']}, this version of Burnish knows up to {FORMAT}; restore it "
                f"with Burnish {tree.get('burnish', '?')} or later"
            )
        return Backup(
            path=folder,
            created_at=float(tree["created_at"]),
            schema=str(tree["schema"]),
            journal_id=tree["journal_id"],
            tables={name: Tally(int(each["n"]), str(each["digest"])) for name, each in tree["tables"].items()},
            versions=tuple(map(str, tree["versions"])),
            segments={str(name): int(size) for name, size in tree["segments"].items()},
            burnish=str(tree["burnish"]),
        )
    except UNREADABLE as error:
        raise JournalError(f"{folder / MANIFEST} cannot be read: {error!r}; the backup is damaged") from error


def _fill(settings: Settings, journal: Journal, aside: Path, target: Path, tell: Tell) -> Backup:
    store = AdapterStore(settings.adapters_dir.resolve())
    made_at, journal_id = time.time(), store.journal_id()
    schema = str(journal.revision())
    with snapshot(journal) as source:
        tell("segments")
        segments = _copy_segments(source, settings.segments_dir, aside / SEGMENTS)
        versions = _copy_versions(source, store, AdapterStore(aside / ADAPTERS), tell)
        copied = Journal.open(f"sqlite:///{aside / JOURNAL}")
        try:
            tables = copy(source, copied, tell)
            tell("comparing")
            with snapshot(copied) as written:
                if differing := compare(tables, tallies(written)):
                    raise JournalError(f"the copy differs from the journal: {'; '.join(differing)}")
        finally:
            copied.close()  # the last connection brings everything into the one file
    for key in (*settings.state_dir.glob("*.key"), *settings.state_dir.glob(MODEL)):
        (aside / KEYS).mkdir(exist_ok=True)
        shutil.copyfile(key, aside / KEYS / key.name)
    found = Backup(target, made_at, schema, journal_id, tables, versions, segments)
    replace_text(aside / MANIFEST, json.dumps(found.to_json(), indent=1))
    return found


def _copy_segments(source: Connection, folder: Path, target: Path) -> dict[str, int]:
    """The segments with records that the snapshot does not hold, each up to its last whole record."""
    rows = source.execute(select(col(SegmentRow.name), col(SegmentRow.offset), col(SegmentRow.error))).all()
    cursors = {name: (offset, error) for name, offset, error in rows}
    target.mkdir()
    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.seg")):
        offset, error = cursors.get(path.name, (0, None))
        try:
            end = path.stat().st_size if error is not None else _end_of_records(path, offset)
            if end > offset:
                sizes[path.name] = _copy_some(path, target / path.name, end)
        except FileNotFoundError:
            continue  # removed: all of it has long been in the journal
    for path in sorted(aside_of(folder).glob("*.seg")):
        aside_of(target).mkdir(exist_ok=True)
        shutil.copyfile(path, aside_of(target) / path.name)
    return sizes


def _end_of_records(path: Path, offset: int) -> int:
    try:
        for _, behind in read(path, offset):
            offset = behind
    except SegmentError:
        return path.stat().st_size
    return offset


def _copy_some(path: Path, target: Path, n_bytes: int) -> int:
    with path.open("rb") as source, target.open("xb") as copied:
        left = n_bytes
        while left and (chunk := source.read(min(left, 2**20))):
            copied.write(chunk)
            left -= len(chunk)
    return n_bytes - left


def _copy_versions(source: Connection, store: AdapterStore, target: AdapterStore, tell: Tell) -> tuple[str, ...]:
    """The files of every version that the snapshot names, and the records of removed ones. A copy whose digests are
    wrong is an error.
    """
    rows = source.execute(
        select(col(VersionRow.agent), col(VersionRow.version), col(VersionRow.state)).where(
            col(VersionRow.removed_at).is_(None)
        )
    ).all()
    names: list[str] = []
    target.root.mkdir()
    for agent, number, state in rows:
        name, path = str(VersionName(agent, number)), store.path(agent, number)
        if not path.is_dir() and state == VersionState.CANDIDATE:
            continue  # its import has not ended
        tell(f"adapters: {name}")
        try:
            shutil.copytree(path, target.path(agent, number))
            target.verify(agent, number)
        except (AdapterError, OSError, shutil.Error) as error:
            raise JournalError(
                f"the files of {name} cannot be backed up: {error}; `burnish journal check` says more. If it was just "
                "removed, try again"
            ) from error
        names.append(name)
    for past in store.root.glob(f"*/{PAST}"):
        shutil.copytree(past, target.root / past.relative_to(store.root))
    return tuple(names)


def _sync_all(folder: Path) -> None:
    for path in (*sorted(folder.rglob("*")), folder):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
