"""The schema: migrations and models agree, a newer journal is refused, an older one is copied before a migration."""

import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Engine, create_engine, inspect, select, text
from sqlmodel import SQLModel, col

from burnish import journal as package
from burnish.adapters.registry import lifecycle
from burnish.errors import JournalError
from burnish.journal import Journal, _write_ahead
from burnish.journal.tables import AuditRow, InteractionRow, KeyRow
from burnish.keys import Scope, mint
from tests.factories import interaction, user
from tests.postgres import Postgres, running
from tests.turns import add_turn

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None


def upgrade() -> None:
    op.add_column("agent", sa.Column("motto", sa.String(), nullable=True))
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """Databases with a schema that a test may change."""
    if request.param == "sqlite":
        return sqlite_url
    server = running(request.config)
    return server.url(server.fresh())


@pytest.fixture
def later_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This Burnish has one migration more than the journal's. Returns the schema before it."""
    head = Journal.open(f"sqlite:///{tmp_path / 'other' / 'a.db'}").revision()
    folder = tmp_path / "migrations"
    shutil.copytree(package._MIGRATIONS, folder)
    (folder / "versions" / "9999_next.py").write_text(NEXT.format(head=head))
    monkeypatch.setattr(package, "_MIGRATIONS", folder)
    assert head is not None
    return head


def test_a_migrations_file_name_begins_with_its_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(package._MIGRATIONS))
    found = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert package._known() == found[::-1]


def test_opening_a_journal_that_is_up_to_date_does_not_import_alembic(tmp_path: Path) -> None:
    opens = "import sys; from burnish.journal import Journal; Journal.open(sys.argv[1])"
    script = opens + "; print('alembic' in sys.modules)"
    run = [sys.executable, "-c", script, f"sqlite:///{tmp_path / 'a.db'}"]
    found = [subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    assert found == ["True", "False"]


@pytest.mark.filterwarnings("ignore:.*expression-based index")  # SQLite's are compared below
def test_migrating_from_nothing_gives_what_the_models_say(any_journal: Journal) -> None:
    with any_journal.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": _compare_default}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, SQLModel.metadata) == []
        assert {"judge_job", "compare_job", "rubric_job", "shadow_job", "replay_job", "load_job"} <= set(
            inspect(connection).get_table_names()
        )


def test_sqlite_gets_the_indexes_that_the_models_say(journal: Journal) -> None:
    """Also those on expressions, which SQLAlchemy does not read from SQLite."""

    def indexes(engine: Engine) -> set[str]:
        with engine.connect() as connection:
            made = connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
            return {" ".join(sql.replace('"', "").split()) for sql in made.scalars()}

    models = create_engine("sqlite://")
    SQLModel.metadata.create_all(models)
    assert indexes(journal.engine) == indexes(models)
    assert any("round(ended_at / 604800), tail_hash, ended_at" in sql for sql in indexes(models))


def _compare_default(*given: Any) -> bool | None:
    """PostgreSQL cannot compare JSON. None leaves the others to alembic."""
    return False if isinstance(given[2].type, JSON) else None


def test_opening_again_changes_nothing(journal_url: str) -> None:
    first = Journal.open(journal_url)
    with first.write() as session:
        lifecycle.ensure_agent(session, "agent")
    first.close()
    again = Journal.open(journal_url)
    with again.read() as session:
        assert lifecycle.alias(session, "agent") == 0
    again.close()


def test_looking_at_a_journal_makes_none(tmp_path: Path, postgres: Postgres) -> None:
    for url in (f"sqlite:///{tmp_path / 'none.db'}", postgres.url(postgres.empty())):
        with pytest.raises(JournalError, match=r"no journal at .* yet; `burnish up` makes one"):
            Journal.open(url, migrate=False)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_schema_is_refused_with_the_remedy(any_journal: Journal, journal_url: str) -> None:
    with any_journal.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '8765'"))
    with pytest.raises(JournalError, match=r"schema is 8765.*run the newer Burnish, or restore the backup"):
        Journal.open(journal_url)


def test_the_file_is_copied_before_a_migration(sqlite_url: str, later_schema: str, tmp_path: Path) -> None:
    journal = Journal.open(sqlite_url, migrate=False)
    with journal.write() as session:
        lifecycle.ensure_agent(session, "kept")
    migrated = Journal.open(sqlite_url)  # while another process has it open, with its last writes in the WAL
    assert migrated.revision() == "9999"
    backup = tmp_path / f"journal.db.before-{later_schema}"
    with sqlite3.connect(backup) as copy:
        assert copy.execute("SELECT name FROM agent").fetchall() == [("kept",)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(later_schema,)]
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with migrated.engine.connect() as connection:
        assert connection.execute(text("SELECT name, motto FROM agent")).fetchall() == [("kept", None)]
    journal.close()
    migrated.close()


def test_a_new_journal_leaves_no_backup(tmp_path: Path) -> None:
    Journal.open(f"sqlite:///{tmp_path / 'deep' / 'journal.db'}").close()
    assert [path.name for path in (tmp_path / "deep").iterdir() if "before" in path.name] == []


def test_a_failing_migration_leaves_the_old_schema(
    any_journal: Journal, journal_url: str, later_schema: str, tmp_path: Path
) -> None:
    file = tmp_path / "migrations" / "versions" / "9999_next.py"
    file.write_text(file.read_text() + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    with pytest.raises(JournalError, match="cannot open the journal"):
        Journal.open(journal_url)
    assert any_journal.revision() == later_schema
    with any_journal.engine.connect() as connection:
        assert "motto" not in {column["name"] for column in inspect(connection).get_columns("agent")}


def test_a_name_that_was_never_proved_becomes_the_clients_word(journal_url: str) -> None:
    journal = Journal.open(journal_url)
    add_turn(journal, interaction([user("x")], interaction_id="old", quoted_user="ana"))
    config = Config()
    config.set_main_option("script_location", str(package._MIGRATIONS))
    with journal.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0009")
        assert connection.execute(text('SELECT "user" FROM interaction')).scalars().all() == ["ana"]
    journal.close()
    journal = Journal.open(journal_url)
    with journal.read() as session:
        row = session.get_one(InteractionRow, "old")
        assert (row.user, row.quoted_user) == (None, "ana")
    journal.close()


def test_an_entry_about_no_agent_gets_the_tenant_of_its_key(journal_url: str) -> None:
    journal = Journal.open(journal_url)
    _, key = mint([Scope.ADMIN], tenant="other")
    with journal.write() as session:
        session.add(KeyRow.of(key))
        for actor in (key.key_id, "admin", "cli"):
            session.add(AuditRow(at=1.0, actor=actor, action="forget", object="erasure-1"))
        session.add(AuditRow(agent="agent", at=1.0, actor=key.key_id, action="forget", object="agent"))
    journal.downgrade("0015")
    journal.close()
    journal = Journal.open(journal_url)
    with journal.read() as session:
        rows = session.scalars(select(AuditRow).order_by(col(AuditRow.audit_id))).all()
        assert [row.tenant for row in rows] == ["other", "default", None, None]
    journal.close()


def test_processes_that_start_together_make_one_schema(tmp_path: Path, postgres: Postgres) -> None:
    for url in (f"sqlite:///{tmp_path / 'shared.db'}", postgres.url(postgres.empty())):
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda _, url=url: Journal.open(url), range(6)))
        assert len({journal.revision() for journal in opened}) == 1
        for journal in opened:
            journal.close()


class Crowded:
    """A cursor on a file that other processes are creating: it reports a lock at once, twice."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute(self, statement: str) -> None:
        self.asked.append(statement)
        if len(self.asked) < 3:
            raise sqlite3.OperationalError("database is locked")


def test_a_file_that_several_make_at_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _write_ahead(cursor := Crowded())
    assert cursor.asked == ["PRAGMA journal_mode=WAL"] * 3
    monkeypatch.setattr("burnish.journal.PATIENCE", -1.0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        _write_ahead(Crowded())


def test_processes_that_migrate_together_keep_the_old_file(sqlite_url: str, later_schema: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: Journal.open(sqlite_url), range(6)))
    assert {journal.revision() for journal in opened} == {"9999"}
    assert [path.name for path in tmp_path.glob("*before*")] == [f"journal.db.before-{later_schema}"]
    with sqlite3.connect(tmp_path / f"journal.db.before-{later_schema}") as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(later_schema,)]
    for journal in opened:
        journal.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "journal.url is not usable"),
        ("oracle://x/y", "journal.url is not usable"),
        ("sqlite:////proc/burnish/journal.db", "cannot open the journal"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/none", "cannot open the journal"),
    ],
)
def test_a_journal_that_cannot_be_opened_is_one_message_without_secrets(url: str, said: str) -> None:
    with pytest.raises(JournalError, match=said) as caught:
        Journal.open(url)
    assert "secret" not in str(caught.value)
