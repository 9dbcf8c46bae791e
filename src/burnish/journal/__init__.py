"""The journal: SQL tables and work queues where the stages meet. Records are append-only, and a cursor never sees a
gap.

`Journal.open` brings the schema up to date (the SQLite file is copied first) and refuses a schema newer than this
program. SQLite runs in WAL mode. PostgreSQL is chosen by its URL.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlmodel import Session

from burnish.errors import JournalError, JournalUnavailable
from burnish.files import sync
from burnish.journal.changes import Changes, announce

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x6275726E  # any number; it must be the same for all processes


PATIENCE = 10.0
MOVED = "moved"
"""The schema's name in a journal that was moved elsewhere."""
TIMEOUTS = {
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "options": "-c statement_timeout=120s -c lock_timeout=30s",
}
"""Of connections to PostgreSQL, in libpq's words and units."""
CHECKPOINT_PAGES = 8000
"""SQLite's own checkpoint is at 1,000 pages, 4 MB. The ingester's new rows change more pages than that, in the indexes,
and each of them would be written again and again.
"""
CACHE_KIB = 32_768
"""Pages in memory, for each connection of a process that files turns, for the same reason. SQLite's own value is 2 MB.
"""
LOOK = 0.001
"""Seconds between two looks for a waiting writer's turn."""


class Journal:
    """A handle on the database. Cheap to make, one per process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.changes = Changes(engine)

    @classmethod
    def at(cls, url: str) -> "Journal":
        """The journal at `url`, whether it answers now or not. Raises JournalError if nothing can be called so."""
        try:
            named = make_url(url)
            # errors are logged, and parameters are records
            engine = create_engine(named, pool_pre_ping=True, hide_parameters=True, connect_args=_limits(named))
        except (ArgumentError, ModuleNotFoundError) as error:
            raise JournalError(f"journal.url is not usable: {error}") from error
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_immediate)
        else:
            announce(engine)
        return cls(engine)

    @classmethod
    def open(cls, url: str, *, migrate: bool = True) -> "Journal":
        """Connect and bring the schema up to date. Without `migrate`, open an existing journal as it is.

        Raises JournalError with the remedy if that is impossible, JournalUnavailable if the database does not answer.
        """
        journal = cls.at(url)
        engine = journal.engine
        try:
            if migrate:
                journal._migrate()
            elif (journal._file is not None and not journal._file.exists()) or (now := journal.revision()) is None:
                raise JournalError(f"no journal at {engine.url!r} yet; `burnish up` makes one")
            elif now == MOVED:
                raise _moved(engine)
        except BaseException as error:
            engine.dispose()
            if isinstance(error, SQLAlchemyError | OSError):
                kind = JournalUnavailable if isinstance(error, OperationalError | OSError) else JournalError
                raise kind(f"cannot open the journal at {engine.url!r}: {error.__cause__ or error}") from error
            raise
        return journal

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: committed at the end of the block, rolled back if the block raises. It cannot be nested."""
        with self._turn(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading. It never waits for a writer."""
        with Session(self.engine.execution_options(burnish_reads=True), expire_on_commit=False) as session:
            yield session

    def hold_pages(self) -> None:
        """Keep more of SQLite's pages in memory. For a process that files turns; the others read few."""
        if self.has_one_writer:
            event.listen(self.engine, "connect", _hold_pages)
            self.engine.dispose()

    @property
    def has_one_writer(self) -> bool:
        """True if all others wait while one process writes."""
        return self.engine.dialect.name == "sqlite"

    def sync(self) -> None:
        """Wait until all that was committed is on the disk. PostgreSQL has done so. SQLite leaves it to its
        checkpoints, which flush this file before the database.
        """
        if self._file is not None:
            sync(self._file.with_name(f"{self._file.name}-wal"))

    def compact(self) -> None:
        """Rewrite the database, so that nothing of what was deleted is left in its files. Writers wait meanwhile.

        Copies from before a migration are removed, because they hold it too. Raises JournalError if a reader keeps the
        old content for longer than `PATIENCE`. PostgreSQL's own write-ahead log and backups are its operator's.
        """
        if self._file is None:
            with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("SET statement_timeout = 0"))
                connection.execute(text("ANALYZE"))  # the planner's statistics hold the most common values
                connection.execute(text("VACUUM FULL"))
                connection.execute(text("RESET statement_timeout"))
            return
        self._remove_copies()
        with self._turn(), closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute("VACUUM")
            until = time.monotonic() + PATIENCE
            while cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > until:
                    raise JournalError(f"{self._file}: a reader keeps what was deleted; it is tried again")
                time.sleep(LOOK)

    def size(self) -> int:
        """Bytes that the database takes on the disk, without SQLite's write-ahead log."""
        count = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        if not self.has_one_writer:
            count = "SELECT pg_database_size(current_database())"
        with self.read() as session:
            return int(session.connection().execute(text(count)).scalar_one())

    def close(self) -> None:
        self.changes.close()
        self.engine.dispose()

    def revision(self) -> str | None:
        """The schema's revision. None if there is no schema."""
        with self.engine.execution_options(burnish_reads=True).connect() as connection:
            return _revision(connection)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for this writer's turn among all processes. SQLite itself lets waiting writers look again only after up
        to 100 ms, and a newcomer goes first. A process that dies gives its turn back. After `PATIENCE`, SQLite's own
        lock decides.
        """
        if self._file is None:
            yield
            return
        handle = os.open(f"{self._file}.writers", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + PATIENCE
            while not _has_locked(handle) and time.monotonic() < until:
                time.sleep(LOOK)
            yield
        finally:
            os.close(handle)

    def downgrade(self, revision: str) -> None:
        """Bring the schema back to that of an earlier Burnish. What only later tables and columns hold is lost; the
        SQLite file is copied first. Raises JournalError for a revision that is unknown or not an earlier one.
        """
        known, current = _known(), self.revision()
        if revision not in known or current not in known or known.index(revision) >= known.index(current):
            raise JournalError(
                f"expected a schema before {current}, got {revision}; the earlier Burnish says which one it knows "
                f"(here: {', '.join(known)})"
            )
        self._back_up(current)
        with self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
            _alembic("downgrade", connection, revision)

    def _migrate(self) -> None:
        known = _known()
        head = known[-1]
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        current = self.revision()
        if current == MOVED:
            raise _moved(self.engine)
        if current is not None and current not in known:
            raise JournalError(
                f"the journal's schema is {current}, which this version of Burnish does not know (it knows up to "
                f"{head}); "
                "run the newer Burnish, or restore the backup beside the journal"
            )
        if current == head:
            return
        # Processes that start together wait here for one another, and the later ones find nothing left to do.
        with self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                for limit in ("statement_timeout", "lock_timeout"):  # a large journal takes its time
                    connection.execute(text(f"SET LOCAL {limit} = 0"))
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            current = _revision(connection)
            if current == head:
                return
            if current is not None:
                self._back_up(current)
            _alembic("upgrade", connection, "head")
        if current is not None:
            self._remove_copies(f"{current}")

    def _back_up(self, revision: str) -> None:
        """Copy the SQLite file as it was committed last. The caller holds the write lock and has changed nothing."""
        if self._file is None:
            return
        target = self._file.with_name(f"{self._file.name}.before-{revision}")
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)

    def _remove_copies(self, latest: str = "") -> None:
        """Remove the copies from before earlier migrations, or all. An upgrade can be undone only from the latest."""
        if self._file is not None:
            for copy in self._file.parent.glob(f"{self._file.name}.before-*"):
                if copy.name != f"{self._file.name}.before-{latest}":
                    copy.unlink(missing_ok=True)

    @property
    def _file(self) -> Path | None:
        database = self.engine.url.database
        return Path(database) if self.engine.dialect.name == "sqlite" and database else None


def _known() -> list[str]:
    """The known revisions, oldest first. A migration's file name begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _alembic(verb: str, connection: Connection, revision: str) -> None:
    """Run a migration. Alembic is imported only here: each part opens a journal, and hardly any migrates it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(command, verb)(config, revision)


def _moved(engine: Engine) -> JournalError:
    return JournalError(
        f"the journal at {engine.url!r} was moved to another database; set journal.url to that one (the audit log of "
        "the new journal names both)"
    )


def _limits(url: URL) -> dict[str, Any]:
    """PostgreSQL's time-outs: a database that hangs is an error, which is waited for. What the URL says comes first."""
    if url.get_backend_name() != "postgresql":
        return {}
    return {name: value for name, value in TIMEOUTS.items() if name not in url.query}


def _has_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own transaction control would begin deferred transactions, which fail as "locked" if two writers
    # meet.
    connection.isolation_level = None
    cursor = connection.cursor()
    checkpoint = f"wal_autocheckpoint={CHECKPOINT_PAGES}"
    for pragma in ("busy_timeout=10000", "synchronous=NORMAL", "foreign_keys=ON", checkpoint):
        cursor.execute(f"PRAGMA {pragma}")
    _write_ahead(cursor)
    cursor.close()


def _hold_pages(connection: Any, _record: Any) -> None:
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")


def _write_ahead(cursor: Any) -> None:
    """Turn a new file's journal mode to write-ahead logging. If several processes ask for it at once, SQLite tells some
    at once that the file is locked, whatever their time-out. These ask again.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(LOOK)


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql(
        "BEGIN" if connection.get_execution_options().get("burnish_reads") else "BEGIN IMMEDIATE"
    )
