"""A traceback in the log, in both formats: it has place and error, and never a key, a body, a record or a message that
may quote one.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from burnish import cli, logs
from burnish.errors import SAID, AdapterError
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
    raise AdapterError(f"cannot answer {len(record)} things{SAID}{SECRET}")


def test_a_traceback_shows_no_local_variables(
    log: structlog.typing.FilteringBoundLogger, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        answered(SECRET.encode(), {"authorization": f"Bearer {SECRET}"})
    except AdapterError:
        log.exception("request failed", request_id="r1")
    shown = _COLOUR.sub("", capsys.readouterr().err)
    assert "AdapterError" in shown and "cannot answer 2 things" in shown
    assert "test_logs.py" in shown and "answered" in shown
    assert SECRET not in shown


def test_nor_does_one_with_a_cause(
    log: structlog.typing.FilteringBoundLogger, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"key": SECRET}
    try:
        try:
            answered(SECRET.encode(), {"authorization": f"Bearer {SECRET}"})
        except AdapterError as error:
            raise RuntimeError(f"{len(held)} request failed") from error
    except RuntimeError:
        log.error("request failed", exc_info=True)
    shown = _COLOUR.sub("", capsys.readouterr().err)
    assert "RuntimeError" in shown and "cannot answer 2 things" in shown
    assert SECRET not in shown


def test_a_command_that_sets_up_no_log_of_its_own_shows_none_either(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = structlog.get_config()
    structlog.reset_defaults()
    monkeypatch.setattr(sys, "argv", ["burnish", "--version"])
    try:
        with pytest.raises(SystemExit):
            cli.main()
        try:
            answered(SECRET.encode(), {"authorization": f"Bearer {SECRET}"})
        except AdapterError:
            structlog.get_logger().exception("command failed")
    finally:
        structlog.configure(**before)
    captured = capsys.readouterr()
    shown = _COLOUR.sub("", captured.out + captured.err)
    assert "cannot answer 2 things" in shown
    assert SECRET not in shown


def test_an_error_that_ends_a_command_shows_none() -> None:
    code = (
        "import sys\nfrom burnish import cli\n"
        "def load(*_, **__):\n    key = 'sk-burnish-' + 'planted-secret'\n    raise ValueError('cannot load')\n"
        "cli.common.load_settings = cli.parts.load_settings = load\n"
        "sys.argv = ['burnish', 'run', 'ingester']\ncli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "cannot load" in done.stderr
    assert SECRET not in done.stdout + done.stderr


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
