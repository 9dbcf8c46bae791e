"""A traceback in the log, in both formats: it has place and error, and never a key, a body or a record."""

import re
from collections.abc import Iterator

import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from burnish import logs
from burnish.journal import Journal

SECRET = "sk-burnish-planted-secret"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(params=["console", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[structlog.typing.FilteringBoundLogger]:
    before = structlog.get_config()
    logs.configure(request.param, "test")
    yield structlog.get_logger()
    structlog.contextvars.clear_contextvars()
    structlog.configure(**before)


def answered(body: bytes, headers: dict[str, str]) -> bytes:
    key = headers["authorization"].removeprefix("Bearer ")
    record = {"key": key, "body": body}
    raise ValueError(f"cannot answer {len(record)} things")


def test_a_traceback_shows_no_local_variables(
    log: structlog.typing.FilteringBoundLogger, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        answered(SECRET.encode(), {"authorization": f"Bearer {SECRET}"})
    except ValueError:
        log.exception("request failed", request_id="r1")
    shown = _COLOUR.sub("", capsys.readouterr().err)
    assert "ValueError" in shown and "cannot answer 2 things" in shown
    assert "test_logs.py" in shown and "answered" in shown
    assert SECRET not in shown


def test_an_error_of_the_database_shows_no_parameters(
    log: structlog.typing.FilteringBoundLogger, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal.open("sqlite://")
    try:
        with journal.write() as session:
            session.execute(text("INSERT INTO nowhere VALUES (:body)"), {"body": SECRET})
    except SQLAlchemyError:
        log.exception("a record cannot be stored")
    shown = _COLOUR.sub("", capsys.readouterr().err)
    assert "nowhere" in shown
    assert SECRET not in shown
