"""Copies a whole journal into another database, SQLite or PostgreSQL, row by row and exactly.

The source is read in one snapshot, so its writers go on meanwhile. The target takes all rows in one transaction or
none. `Tally` says whether two journals hold the same rows, whatever their databases and the order of their rows.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import JSON, Boolean, Connection, Float, Table, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, SQLModel

from burnish.errors import JournalError
from burnish.journal import MOVED, Journal
from burnish.journal.bulk import insert_rows

AT_ONCE = 1000
"""Rows in one statement."""
TELL_SECONDS = 0.5
Tell = Callable[[str], None]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows a table has, and the sum of their digests, in hex."""

    n: int = 0
    digest: str = f"{0:032x}"


Tallies = Mapping[str, Tally]


@contextmanager
def snapshot(journal: Journal) -> Iterator[Connection]:
    """A connection that sees the journal as it is now, however long it reads. Writers go on."""
    options: dict[str, Any] = {"burnish_reads": True}
    if not journal.has_one_writer:
        options["isolation_level"] = "REPEATABLE READ"
    with journal.engine.connect().execution_options(**options) as connection:
        if not journal.has_one_writer:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT count(*) FROM segment"))  # the snapshot begins at the first read
        yield connection


def tallies(source: Connection, tell: Tell = lambda _: None) -> dict[str, Tally]:
    """The tally of every table."""
    return {table.name: _read_all(source, table, tell, lambda rows: None) for table in _tables()}


def copy(source: Connection, target: Journal, tell: Tell = lambda _: None) -> dict[str, Tally]:
    """Copy every row into `target`, which has the same schema and no rows. Returns what was read.

    Raises JournalError if `target` does not take a row, or has rows.
    """
    found: dict[str, Tally] = {}
    table_name = ""
    try:
        with target.write() as session:
            _lift_limits(session)
            for table in _tables():
                table_name = table.name
                if session.connection().execute(table.select().limit(1)).first() is not None:
                    raise JournalError(
                        f"expected an empty journal at {target.engine.url!r}, found rows in {table_name}; name another "
                        "database"
                    )
                found[table_name] = _read_all(source, table, tell, _writer(session, table))
                _continue_numbers(session, table)
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip()[:300]
        raise JournalError(f"{target.engine.url!r} does not take the table {table_name}: {said}") from error
    return found


def is_empty(journal: Journal) -> bool:
    """True if the journal has no row at all."""
    with journal.read() as session:
        return all(session.connection().execute(table.select().limit(1)).first() is None for table in _tables())


def compare(expected: Tallies, found: Tallies) -> list[str]:
    """The tables that differ, each as a sentence."""
    none = Tally()
    pairs = {name: (expected.get(name, none), found.get(name, none)) for name in {**expected, **found}}
    return [
        f"{name}: {wanted.n:,} rows expected, {there.n:,} found"
        if wanted.n != there.n
        else f"{name}: the {there.n:,} rows hold something else"
        for name, (wanted, there) in pairs.items()
        if wanted != there
    ]


def mark_moved(journal: Journal) -> None:
    """No Burnish opens this journal from now on. Its rows stay."""
    with journal.write() as session:
        session.connection().execute(text("UPDATE alembic_version SET version_num = :moved"), {"moved": MOVED})


def _tables() -> Sequence[Table]:
    """All tables, those that others refer to first."""
    return SQLModel.metadata.sorted_tables


def _read_all(source: Connection, table: Table, tell: Tell, take: Callable[[Sequence[Row]], None]) -> Tally:
    """Give all rows to `take`, and count them."""
    n, total, told_at = 0, 0, 0.0
    rows = _rows(source, table)
    while batch := list(islice(rows, AT_ONCE)):
        take(batch)
        n += len(batch)
        total += sum(map(_digest, batch))
        if time.monotonic() > told_at + TELL_SECONDS:
            told_at = time.monotonic()
            tell(f"{table.name}: {n:,} rows")
    return Tally(n, f"{total % 2**128:032x}")


def _rows(source: Connection, table: Table) -> Iterator[Row]:
    """The rows as both databases take them: JSON as text, truth as a bool."""
    is_postgresql = source.dialect.name == "postgresql"
    columns = ", ".join(
        f'"{column.name}"::text' if is_postgresql and isinstance(column.type, JSON) else f'"{column.name}"'
        for column in table.columns
    )
    convert = [_CONVERTED.get(type(column.type), _same) for column in table.columns]
    options = {"stream_results": True, "yield_per": AT_ONCE}
    for row in source.execution_options(**options).exec_driver_sql(f'SELECT {columns} FROM "{table.name}"'):
        yield tuple([None if value is None else made(value) for made, value in zip(convert, row, strict=True)])


def _same(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


_CONVERTED: dict[type, Callable[[Any], Any]] = {Boolean: bool, Float: float}


def _digest(row: Row) -> int:
    return int.from_bytes(hashlib.blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest())


def _writer(session: Session, table: Table) -> Callable[[Sequence[Row]], None]:
    columns = tuple(column.name for column in table.columns)
    return lambda rows: insert_rows(session, table, columns, rows)


def _continue_numbers(session: Session, table: Table) -> None:
    """PostgreSQL goes on numbering behind the copied rows."""
    column = table.autoincrement_column
    if column is None or session.get_bind().dialect.name != "postgresql":
        return
    session.connection().exec_driver_sql(
        f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), max({column.name})) "
        f'FROM "{table.name}" HAVING max({column.name}) IS NOT NULL'
    )


def _lift_limits(session: Session) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.connection().execute(text("SET LOCAL statement_timeout = 0"))
