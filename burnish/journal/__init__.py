"""The journal: SQL tables and work queues where the stages meet. Append-only where it records; a cursor never sees a gap.

`Journal.open` brings the schema up to date (the SQLite file is copied aside first) and refuses a schema newer than this
program. SQLite runs in WAL mode; any other SQLAlchemy URL is used as it is (PostgreSQL is tested).
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlmodel import Session

from burnish.errors import JournalError

_MIGRATIONS = Path(__file__).parent / "migrations"


class Journal:
    """A handle on the database; cheap to make, one per process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, url: str, *, migrate: bool = True) -> "Journal":
        """Connect and bring the schema up to date. Raises JournalError with the remedy where that is impossible."""
        try:
            engine = create_engine(url, pool_pre_ping=True)
        except (ArgumentError, ModuleNotFoundError) as error:
            raise JournalError(f"journal.url is not usable: {error}") from error
        if engine.dialect.name == "sqlite":
            if engine.url.database:
                Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_immediate)
        journal = cls(engine)
        if migrate:
            try:
                journal._migrate()
            except SQLAlchemyError as error:
                raise JournalError(f"cannot open the journal at {engine.url!r}: {error.__cause__ or error}") from error
        return journal

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading; it never waits for a writer."""
        with Session(self.engine.execution_options(burnish_reads=True), expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()

    def revision(self) -> str | None:
        with self.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        script = ScriptDirectory.from_config(config)
        current, head = self.revision(), script.get_current_head()
        if current == head:
            return
        if current is not None:
            if current not in {revision.revision for revision in script.walk_revisions()}:
                raise JournalError(
                    f"the journal's schema is {current}, which this version of Burnish does not know (it knows up to {head}); "
                    "run the newer Burnish, or restore the backup beside the journal"
                )
            self._back_up(current)
        with self.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _back_up(self, revision: str) -> None:
        if self.engine.dialect.name == "sqlite" and self.engine.url.database:
            path = Path(self.engine.url.database)
            with sqlite3.connect(path) as source:
                source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy2(path, path.with_name(f"{path.name}.before-{revision}"))


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own transaction control would begin deferred transactions, which fail as "locked" when two writers meet.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("burnish_reads") else "BEGIN IMMEDIATE")
