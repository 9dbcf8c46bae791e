"""Many rows with one statement, on both databases. The ingester's path: no ORM, few round trips.

SQLite is in the process, so a prepared statement for each row costs little. PostgreSQL gets the columns as arrays, in
one statement.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, CursorResult, Table, TextClause, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, SQLModel

_COPIED = {"FLOAT": "float8", "INTEGER": "int4", "BOOLEAN": "bool", "BYTEA": "bytea"}
SKIP = "ON CONFLICT DO NOTHING"


def insert_many(session: Session, table: type[SQLModel], rows: Sequence[Mapping[str, Any]], end: str = "") -> None:
    """Insert rows with the same columns. JSON columns are given as text. `end` says what a taken key means (`SKIP`)."""
    if rows:
        insert_rows(session, _table(table), tuple(rows[0]), [tuple(row.values()) for row in rows], end)


def insert_rows(
    session: Session, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]], end: str = ""
) -> None:
    """The same for rows that are values in the order of `columns`."""
    connection = session.connection()
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(_insert_row(table, columns, end), list(rows))
    elif end:
        connection.exec_driver_sql(_insert_arrays(table, columns, end), _columns_of(rows))
    else:
        _copy(connection, table, columns, rows)


def _table(table: type[SQLModel]) -> Table:
    return table.__table__  # type: ignore[attr-defined,no-any-return]


def update_many(session: Session, statement: str, kinds: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute the UPDATE `statement` for each of `rows`. `kinds` are the SQL types of its parameters, `:name`."""
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(statement, list(rows))
        return
    arrays = ", ".join(f"%s::{kind}[]" for kind in kinds.values())
    head, where, tail = re.sub(r":([a-z_]+)", r"new.\1", statement).partition(" WHERE ")
    changed = f"{head} FROM unnest({arrays}) AS new({', '.join(kinds)}){where}{tail}"
    connection.exec_driver_sql(changed, _columns_of([[row[name] for name in kinds] for row in rows]))


def given(dialect: str, **columns: str) -> str:
    """A table of the values in the parameter `:given`, made by `as_given`. `columns` are names with SQL types."""
    if dialect == "postgresql":
        values = (f"CAST(value->>{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(columns.items()))
        return f"(SELECT {', '.join(values)} FROM jsonb_array_elements(CAST(:given AS jsonb)))"
    values = (f"json_extract(value, '$[{at}]') AS {name}" for at, name in enumerate(columns))
    return f"(SELECT {', '.join(values)} FROM json_each(:given))"


def as_given(rows: Sequence[Sequence[Any]]) -> str:
    return json.dumps(rows)


def select_in(session: Session, statement: str, names: Collection[str]) -> Sequence[Any]:
    """The rows of `statement`, in which `IN :names` stands for `names`."""
    return execute_in(session, statement, names).all() if names else ()


def execute_in(session: Session, statement: str, names: Collection[str]) -> CursorResult[Any]:
    """The result of `statement`, in which `IN :names` stands for `names`."""
    connection = session.connection()
    is_postgresql = connection.dialect.name == "postgresql"
    values: Any = list(names) if is_postgresql else json.dumps(list(names))
    return connection.execute(_in_names(statement, is_postgresql), {"names": values})


def _copy(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """PostgreSQL's COPY, which takes less than half of our time for an INSERT of wide rows."""
    import psycopg  # A learner on a machine of its own has no PostgreSQL driver.

    kinds = _kinds(table)
    try:
        cursor = connection.connection.cursor()
        with cursor.copy(f"COPY {_head(table, columns)} FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types([_COPIED.get(kinds[name], "text") for name in columns])
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        raise DBAPIError.instance("COPY", None, error, psycopg.Error, dialect=connection.dialect) from error


def _columns_of(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


@lru_cache
def _in_names(statement: str, is_postgresql: bool) -> TextClause:
    names = "= ANY(CAST(:names AS text[]))" if is_postgresql else "IN (SELECT value FROM json_each(:names))"
    return text(statement.replace("IN :names", names))


@lru_cache
def _insert_row(table: Table, columns: tuple[str, ...], end: str) -> str:
    return f"INSERT INTO {_head(table, columns)} VALUES ({', '.join('?' * len(columns))}) {end}"


@lru_cache
def _insert_arrays(table: Table, columns: tuple[str, ...], end: str) -> str:
    kinds = _kinds(table)
    arrays = ", ".join(f"%b::{kinds[name]}[]" for name in columns)  # as text, every value would be searched for quotes
    return f"INSERT INTO {_head(table, columns)} SELECT * FROM unnest({arrays}) {end}"


def _head(table: Table, columns: tuple[str, ...]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f'"{table.name}" ({names})'


@lru_cache
def _kinds(table: Table) -> Mapping[str, str]:
    """PostgreSQL's type of each column."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return {column.name: column.type.compile(dialect) for column in table.columns}
