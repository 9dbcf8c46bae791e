"""`burnish journal`: check, back up, restore, move, downgrade, vacuum, on a state directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.cli.up import LOCK
from burnish.files import hold
from burnish.journal import Journal
from tests.cli.conftest import Run
from tests.factories import interaction, user
from tests.postgres import Postgres, postgres
from tests.turns import add_turn

__all__ = ["postgres"]


@pytest.fixture
def state(run: Run, tmp_path: Path) -> Iterator[Path]:
    """A state directory with one turn."""
    (tmp_path / ".burnish").mkdir()
    journal = Journal.open(f"sqlite:///{tmp_path / '.burnish' / 'journal.db'}")
    add_turn(journal, interaction([user("x")], interaction_id="t"))
    yield tmp_path / ".burnish"
    journal.close()


def test_a_sound_journal_is_said_to_be_sound_and_a_damaged_one_is_status_1(run: Run, state: Path) -> None:
    done = run("journal", "check")
    assert done.status == 0 and "looked at 1 turn, 2 texts" in done.out and "all is sound" in done.out
    (state / "segments").mkdir()
    (state / "segments" / "00000000000000000001-x.seg").write_bytes(b"no segment at all" * 4)
    done = run("journal", "check", "--json")
    assert done.status == 1 and not done.json["is_sound"] and done.json["findings"][0]["part"] == "segments"
    assert "is damaged" in run("journal", "check").out


def test_a_backup_is_restored_into_another_directory(run: Run, state: Path, tmp_path: Path) -> None:
    done = run("journal", "backup", "saved", "--json")
    assert done.status == 0 and done.json["tables"]["interaction"]["n"] == 1
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o700
    assert "expected a new folder" in run("journal", "backup", "saved").error
    done = run("journal", "restore", "saved", "--state", "other")
    assert done.status == 0 and "restored 1 turn and 0 versions of" in done.out
    assert run("journal", "check", "--state", "other", "--json").json["n_turns"] == 1
    assert "is no backup" in run("journal", "restore", "nowhere", "--state", "third").error
    journal = Journal.open(f"sqlite:///{state / 'journal.db'}")
    add_turn(journal, interaction([user("y")], interaction_id="later"))
    journal.close()
    assert (
        "holds something else (blob: 2 rows expected, 3 found; interaction" in run("journal", "restore", "saved").error
    )


def test_a_journal_moves_and_the_old_one_says_where(run: Run, state: Path, postgres: Postgres) -> None:
    url = postgres.url(postgres.empty())
    done = run("journal", "move", url, "--yes")
    assert done.status == 0 and "now set journal.url to it and start the server" in done.out
    assert "was moved to another database" in run("journal", "check").error
    assert run("journal", "move", "sqlite:///x.db", "--yes").status == 1
    (state.parent / "burnish.toml").write_text(f'[journal]\nurl = "{url}"\n')
    assert run("journal", "check", "--json").json["n_turns"] == 1


@pytest.mark.parametrize("verb", [("move", "sqlite:///x.db", "--yes"), ("downgrade", "0012", "--yes")])
def test_a_running_server_is_not_disturbed(run: Run, state: Path, verb: tuple[str, ...]) -> None:
    (state / "run").mkdir()
    for name, said in ((LOCK, "`burnish up` runs on"), ("ingester.lock", "an ingester runs on")):
        lock = hold(state / "run" / name)
        done = run("journal", *verb)
        os.close(lock)
        assert done.status == 1 and said in done.error
    assert run("journal", "check").status == 0


def test_a_downgrade_says_what_comes_next(run: Run, state: Path) -> None:
    assert "expected a schema before" in run("journal", "downgrade", "9", "--yes").error
    done = run("journal", "downgrade", "0012", "--yes", "--json")
    assert done.status == 0 and done.json["schema"] == "0012" and "install the earlier Burnish" in done.json["status"]


def test_free_pages_are_given_back(run: Run, state: Path) -> None:
    journal = Journal.open(f"sqlite:///{state / 'journal.db'}")
    add_turn(journal, interaction([user("y" * 3_000_000)], interaction_id="large"))
    with journal.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM blob WHERE length(body) > 1000000")
    journal.close()
    assert run("journal", "vacuum", "--json").json["freed_bytes"] > 2_000_000
