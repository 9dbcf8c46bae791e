"""The restore drill: a backup taken under load becomes the same server elsewhere, or a clear error."""

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import select

from burnish.adapters.files.binding import bind
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import noted_model
from burnish.adapters.upkeep import backup as backups
from burnish.adapters.upkeep import restore as restores
from burnish.adapters.upkeep.backup import Backup, load, make
from burnish.adapters.upkeep.copying import snapshot as seen
from burnish.adapters.upkeep.copying import tallies
from burnish.adapters.upkeep.journal_check import check
from burnish.adapters.upkeep.restore import move, restore
from burnish.config import Journal as JournalSettings
from burnish.config import Settings
from burnish.errors import JournalError
from burnish.journal import Journal
from burnish.journal.tables import AliasRow, InteractionRow, LoadJob, PromptPartRow, VersionRow
from burnish.segments.file import SegmentWriter
from burnish.server.ingest.ingester import Ingester
from tests.adapters.files.test_binding import publish
from tests.factories import interaction, user
from tests.postgres import Postgres, running
from tests.turns import add_feedback, add_turn

Open = Callable[[str], Journal]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens journals, and closes them after the test."""
    known: list[Journal] = []

    def open_one(url: str) -> Journal:
        known.append(Journal.open(url))
        return known[-1]

    yield open_one
    for journal in known:
        journal.close()


class Server:
    """A state directory with three turns, a live version, one that was removed, and records that wait."""

    def __init__(self, state: Path, opened: Open, url: str = "") -> None:
        self.settings = Settings(state_dir=state, journal=JournalSettings(url=url))
        self.journal = opened(self.settings.journal_url)
        self.store = AdapterStore(self.settings.adapters_dir)
        self.settings.adapters_dir.mkdir(parents=True)
        with self.journal.write() as session:
            lifecycle.ensure_agent(session, "agent")
            for number in (1, 2):
                lifecycle.announce(session, "agent", number, parent=0, step_id=None, digest="d")
            lifecycle.promote(session, "agent", 1, expected=0, actor="test", reason="good: ünïcode \\u0000")
            session.get_one(VersionRow, ("agent", 2)).removed_at = 5.0
        publish(self.store, 1)
        bind(self.journal, self.store)
        for n in range(3):
            add_turn(self.journal, interaction([user(f"q{n}")], interaction_id=f"t{n}", may_train=n != 1))
        add_feedback(self.journal, "t0", 1.0, comment="fine")
        (state / "users.key").write_text("secret")
        (state / "model").write_text("acme/model-7b")
        self.writer = SegmentWriter(self.settings.segments_dir)
        for n in range(2):
            self.writer.append(interaction([user(f"w{n}")], interaction_id=f"w{n}"))


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path, opened: Open) -> Server:
    url = "" if request.param == "sqlite" else running(request.config).url(running(request.config).fresh())
    return Server(tmp_path / "first", opened, url)


@pytest.fixture(params=["sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = "" if request.param == "sqlite" else running(request.config).url(running(request.config).empty())
    return Settings(state_dir=tmp_path / "second", journal=JournalSettings(url=url))


@pytest.fixture
def small(tmp_path: Path, opened: Open) -> tuple[Settings, Path]:
    """A restorable backup, and settings of an empty place."""
    made = Server(tmp_path / "first", opened)
    make(made.settings, made.journal, tmp_path / "backup")
    return Settings(state_dir=tmp_path / "second"), tmp_path / "backup"


def names(journal: Journal) -> set[str]:
    with journal.read() as session:
        return set(session.scalars(select(InteractionRow.interaction_id)))


def test_a_backup_restored_elsewhere_has_the_same_rows_versions_and_waiting_records(
    server: Server, elsewhere: Settings, tmp_path: Path, opened: Open
) -> None:
    publish(server.store, 7)
    server.store.remove("agent", 7)
    made = make(server.settings, server.journal, tmp_path / "backup")
    assert load(tmp_path / "backup") == made and made.versions == ("agent@v1",) and made.n_turns == 3
    restore(elsewhere, tmp_path / "backup")
    journal, store = opened(elsewhere.journal_url), AdapterStore(elsewhere.adapters_dir)
    with seen(server.journal) as before, seen(journal) as after:
        assert tallies(before) == tallies(after)
    bind(journal, store)
    store.verify("agent", 1)
    assert store.manifest("agent", 7)["version"] == 7, "how a removed version was made"
    assert store.journal_id() == server.store.journal_id()
    assert (elsewhere.state_dir / "users.key").read_text() == "secret"
    assert noted_model(elsewhere) == "acme/model-7b"
    with journal.read() as session:
        assert session.get_one(AliasRow, ("agent", "live")).version == 1
    assert not check(elsewhere, journal).findings
    Ingester.of(elsewhere, journal).run_once()
    assert names(journal) == {"t0", "t1", "t2", "w0", "w1"}
    with journal.write() as session:  # numbering goes on behind what was copied
        lifecycle.ensure_agent(session, "another")
        lifecycle.announce(session, "agent", 3, parent=1, step_id=None, digest="d")
        assert session.get_one(LoadJob, "agent@v3").state == "queued"


def test_a_backup_under_load_misses_nothing_that_had_ended(server: Server, tmp_path: Path, opened: Open) -> None:
    ended, is_over = ["t0", "t1", "t2", "w0", "w1"], threading.Event()

    def serve() -> None:
        n = 0
        ingester = Ingester.of(server.settings, opened(server.settings.journal_url))
        while not is_over.is_set():
            n += 1
            server.writer.append(interaction([user(f"l{n}")], interaction_id=f"l{n}"))
            ended.append(f"l{n}")
            if n % 20 == 0:
                ingester.run_once()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while len(ended) < 100:
            is_over.wait(0.01)
        before = set(ended)
        make(server.settings, server.journal, tmp_path / "backup")
    finally:
        is_over.set()
        thread.join()
    elsewhere = Settings(state_dir=tmp_path / "second")
    restore(elsewhere, tmp_path / "backup")
    journal = opened(elsewhere.journal_url)
    ingester = Ingester.of(elsewhere, journal)
    while ingester.run_once():
        pass
    assert before <= names(journal) <= set(ended)
    assert not check(elsewhere, journal).findings


def test_a_journal_moves_to_the_other_database_and_back(tmp_path: Path, postgres: Postgres, opened: Open) -> None:
    server = Server(tmp_path / "first", opened)
    with seen(server.journal) as rows:
        before = tallies(rows)
    there = opened(postgres.url(postgres.empty()))
    assert move(server.journal, there) == before
    for migrate in (True, False):
        with pytest.raises(JournalError, match=r"journal at sqlite:.* was moved to another database; set journal\.url"):
            Journal.open(server.settings.journal_url, migrate=migrate)
    with pytest.raises(JournalError, match="1 other connections use"):
        other = opened(there.engine.url.render_as_string(hide_password=False))
        with other.engine.connect():
            move(there, opened(f"sqlite:///{tmp_path / 'never.db'}"))
    other.close()
    back = opened(f"sqlite:///{tmp_path / 'back.db'}")
    found = move(there, back)
    assert {name: each for name, each in found.items() if name != "audit"} == {
        name: each for name, each in before.items() if name != "audit"
    }
    assert found["audit"].n == before["audit"].n + 1  # the first move
    bind(back, server.store)


def test_a_move_that_was_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    server, target = Server(tmp_path / "first", opened), opened(f"sqlite:///{tmp_path / 'new.db'}")

    def dies(journal: Journal) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restores, "mark_moved", dies)
        with pytest.raises(KeyboardInterrupt):
            move(server.journal, target)
    assert names(opened(server.settings.journal_url)) == {"t0", "t1", "t2"}
    move(server.journal, target)
    add_turn(target, interaction([user("later")], interaction_id="later"))
    other = Server(tmp_path / "other", opened)
    with pytest.raises(JournalError, match=r"holds something else \(.*audit: .*; name an empty database"):
        move(other.journal, target)


def test_a_later_schema_and_a_later_format_are_refused(small: tuple[Settings, Path]) -> None:
    elsewhere, folder = small
    with closing(sqlite3.connect(folder / backups.JOURNAL, isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '8765'")
    with pytest.raises(JournalError, match=r"schema is 8765.*run the newer Burnish"):
        restore(elsewhere, folder)
    change(folder, format=2)
    with pytest.raises(JournalError, match=r"has the format 2, this version of Burnish knows up to 1; restore it with"):
        restore(elsewhere, folder)
    assert not elsewhere.adapters_dir.exists()


def test_a_backup_of_an_earlier_schema_is_migrated(small: tuple[Settings, Path], opened: Open) -> None:
    from alembic import command
    from alembic.config import Config

    from burnish import journal as package

    elsewhere, folder = small
    config, copied = Config(), Journal.at(f"sqlite:///{folder / backups.JOURNAL}")
    config.set_main_option("script_location", str(package._MIGRATIONS))
    with copied.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0012")
    copied.close()
    change(folder, schema="0012")
    restore(elsewhere, folder)
    assert names(opened(elsewhere.journal_url)) == {"t0", "t1", "t2"}
    with closing(sqlite3.connect(folder / backups.JOURNAL, isolation_level=None)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == ("0012",)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / backups.MANIFEST).unlink(), "is no backup: it has no backup.json"),
        (lambda folder: (folder / backups.MANIFEST).write_text("{"), "cannot be read"),
        (lambda folder: change(folder, tables={}), "cannot be read|damaged"),
        (lambda folder: next(folder.glob("segments/*.seg")).write_bytes(b"x"), "expected .* bytes in"),
        (lambda folder: (folder / "adapters/agent/v000001/adapter_model.safetensors").write_bytes(b"x"), "damaged"),
        (lambda folder: shutil.rmtree(folder / "adapters/agent/v000001"), "damaged"),
        (lambda folder: alter(folder), "journal is damaged: interaction"),
    ],
)
def test_a_damaged_backup_is_named_and_nothing_is_restored(
    small: tuple[Settings, Path], damage: object, said: str
) -> None:
    elsewhere, folder = small
    damage(folder)  # type: ignore[operator]
    with pytest.raises(JournalError, match=said):
        restore(elsewhere, folder)
    assert not elsewhere.adapters_dir.exists() and not elsewhere.segments_dir.exists()


def change(folder: Path, **facts: object) -> None:
    file = folder / backups.MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))


def alter(folder: Path) -> None:
    with closing(sqlite3.connect(folder / backups.JOURNAL, isolation_level=None)) as database:
        database.execute("UPDATE interaction SET may_train = 1")


def test_nothing_is_overwritten(small: tuple[Settings, Path], tmp_path: Path, opened: Open) -> None:
    elsewhere, folder = small
    first = Settings(state_dir=tmp_path / "first")
    with pytest.raises(JournalError, match="expected a new folder"):
        make(first, opened(first.journal_url), folder)
    with pytest.raises(JournalError, match=r"expected an empty state directory, but .*first has versions or segments"):
        restore(first, folder)
    other = opened(elsewhere.journal_url)
    with other.write() as session:
        lifecycle.ensure_agent(session, "somebody's")
    with pytest.raises(JournalError, match="holds something else"):
        restore(elsewhere, folder)
    assert names(other) == set()


def test_a_restore_that_was_interrupted_can_be_repeated(
    small: tuple[Settings, Path], monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    elsewhere, folder = small
    with monkeypatch.context() as patch:
        patch.setattr(restores, "_put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restore(elsewhere, folder)
    restore(elsewhere, folder)
    assert names(opened(elsewhere.journal_url)) == {"t0", "t1", "t2"}
    assert sorted(path.name for path in elsewhere.state_dir.iterdir() if path.name.startswith(".")) == []


def test_a_backup_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open) -> None:
    server = Server(tmp_path / "first", opened)
    server.store.path("agent", 1).joinpath("adapter_model.safetensors").write_bytes(b"altered")
    with pytest.raises(JournalError, match=r"the files of agent@v1 cannot be backed up: .*adapter_model"):
        make(server.settings, server.journal, tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]


def test_a_check_names_each_kind_of_damage(server: Server) -> None:
    assert check(server.settings, server.journal).to_json()["is_sound"]
    with server.journal.write() as session:
        session.execute(text("UPDATE blob SET body = '[]' WHERE body LIKE '%q1%'"))
        session.execute(text("DELETE FROM blob WHERE body LIKE '%q2%'"))
        session.add(PromptPartRow(digest="another", ids=b"altered"))
        session.execute(text("UPDATE interaction SET prompt_parts = '[\"none\"]' WHERE interaction_id = 't1'"))
        session.execute(text("UPDATE alias SET version = 2 WHERE alias = 'live'"))
    shutil.rmtree(server.store.path("agent", 1))
    next(server.settings.segments_dir.glob("*.seg")).write_bytes(b"damaged" * 9)
    (server.settings.run_dir).mkdir()
    (server.settings.run_dir / "routes.json").write_text("{}")
    found, gone = check(server.settings, server.journal), "that are not there"
    said = {finding.part: finding.what for finding in found.findings}
    assert {f"t2 names 1 texts {gone}", f"t1 names 1 parts of its prompt {gone}"} <= {f.what for f in found.findings}
    assert "was altered" in said["texts"] and "was altered" in said["prompts"]
    assert "is damaged" in said["segments"]
    assert "names v2, which has no files" in said["adapters"]
    assert "cannot be read" in said["serving table"]
    assert isinstance(found.n_turns, int) and found.n_turns == 3


def test_what_a_backup_says_of_itself_is_read_back(small: tuple[Settings, Path]) -> None:
    found = load(small[1])
    assert isinstance(found, Backup) and json.loads(json.dumps(found.to_json()))["format"] == backups.FORMAT
