"""A database that hangs is an error like one that is away."""

import socket

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from burnish import journal as module
from burnish.errors import JournalUnavailable
from burnish.journal import Journal
from tests.postgres import Postgres


@pytest.mark.timeout(60)
def test_a_server_that_accepts_and_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.TIMEOUTS, "connect_timeout", 2)  # libpq's shortest
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(JournalUnavailable, match="cannot open the journal"):
            Journal.open(f"postgresql+psycopg://nobody@127.0.0.1:{port}/none")


def test_a_statement_ends_in_time_unless_the_url_says_otherwise(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.url(postgres.fresh())
    for suffix, expected in (("", "2min"), ("&options=-c%20statement_timeout%3D7s", "7s")):
        opened = Journal.open(url + suffix)
        with opened.read() as session:
            assert session.execute(text("SHOW statement_timeout")).scalar_one() == expected
        opened.close()
    monkeypatch.setitem(module.TIMEOUTS, "options", "-c statement_timeout=1s")
    opened = Journal.open(url)
    with opened.read() as session, pytest.raises(OperationalError, match="statement timeout"):
        session.execute(text("SELECT pg_sleep(30)"))
    opened.close()


def test_a_migration_may_take_longer(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.TIMEOUTS, "options", "-c statement_timeout=1s")
    migrate = module._alembic

    def slow(verb: str, connection: Connection, revision: str) -> None:
        connection.execute(text("SELECT pg_sleep(1.5)"))
        migrate(verb, connection, revision)

    monkeypatch.setattr(module, "_alembic", slow)
    monkeypatch.setattr(Journal, "revision", lambda _: None)
    Journal.open(postgres.url(postgres.empty())).close()
