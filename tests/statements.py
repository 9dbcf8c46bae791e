"""What SQL a piece of code runs, and how SQLite would carry it out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

Statement = tuple[str, Any]
"""The text and its parameters."""


@contextmanager
def noted(engine: Engine) -> Iterator[list[Statement]]:
    """The statements that run within the block."""
    said: list[Statement] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        said.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plans(engine: Engine, said: Sequence[Statement]) -> Iterator[tuple[str, list[str]]]:
    """Each query with the steps of SQLite's plan."""
    with engine.connect() as connection:
        for statement, parameters in {str(each): each for each in said}.values():
            if statement.startswith(("SELECT", "WITH")):
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                yield statement, [str(row[3]) for row in plan]
