"""`burnish privacy`: export, forget and status, with and without a running ingester."""

import io
import json
import os
from pathlib import Path

import pytest

from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.files import hold
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.server.ingest.ingester import LOCK
from tests.cli.conftest import Run
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal with two turns of ann and one of a key, in the working directory of `run`."""
    opened = prepare(Settings(state_dir=tmp_path / ".burnish"))
    for text in ("words of ann", "more words"):
        name = add_turn(opened, interaction([user(text)], user="ann"))
    add_feedback(opened, name, -1.0, comment="her comment", user="ann")
    add_turn(opened, interaction([user("words of a key")]))
    return opened


def left_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_an_export_holds_what_is_stored_of_the_user_alone(journal: Journal, run: Run, tmp_path: Path) -> None:
    assert run("privacy", "export", "ann", "--output", "ann.jsonl").out.startswith("2 rows in ann.jsonl")
    text = (tmp_path / "ann.jsonl").read_text()
    assert "words of ann" in text and "her comment" in text and "words of a key" not in text
    assert [json.loads(line)["what"] for line in text.splitlines()] == ["turn", "turn"]
    assert "words of a key" in run("privacy", "export", "key-1", "--key").out
    again = run("privacy", "export", "ann", "--output", "ann.jsonl")
    assert again.status == 1 and "ann.jsonl exists; choose another name" in again.error


def test_forgetting_asks_first_and_a_dry_run_changes_nothing(
    journal: Journal, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = run("privacy", "forget", "ann", "--dry-run", "--json").json
    assert (dry["n_turns"], dry["n_feedback"], dry["dry_run"]) == (2, 1, True)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    refused = run("privacy", "forget", "ann")
    assert refused.status == 1 and "use --yes" in refused.error
    with journal.read() as session:
        assert session.query(InteractionRow).count() == 3


def test_without_an_ingester_the_command_does_the_work(journal: Journal, run: Run, tmp_path: Path) -> None:
    told = run("privacy", "forget", "ann", "--yes")
    assert told.out.startswith("erased 2 turns, 1 feedback record, 2 texts and 0 segments; revoked 0 keys"), told
    assert "versions that learned from them: none" in told.out
    found = left_in(tmp_path / ".burnish")
    assert b"words of ann" not in found and b"her comment" not in found and b"words of a key" in found
    assert run("privacy", "status", "ann", "--json").json["state"] == "done"
    assert run("privacy", "forget", "ann", "--yes").out.startswith("erased 0 turns")


def test_with_an_ingester_the_command_waits_for_it(journal: Journal, run: Run, tmp_path: Path) -> None:
    lock = hold(tmp_path / ".burnish" / "run" / LOCK)
    told = run("privacy", "forget", "ann", "--yes", "--wait", "0")
    assert told.status == 0 and told.out.startswith("the erasure is under way; `burnish privacy status`")
    with journal.read() as session:
        assert session.query(InteractionRow).count() == 3
    told = run("privacy", "forget", "ann", "--yes", "--wait", "0", "--retrain")
    assert told.status == 1 and "nothing was retrained: the erasure has not ended within 0 s" in told.error
    os.close(lock)
    assert run("privacy", "forget", "ann", "--yes", "--json").json["n_turns"] == 2


def test_a_user_of_whom_nothing_is_stored_is_an_error(journal: Journal, run: Run) -> None:
    for verb in ("export", "forget"):
        told = run("privacy", verb, "nobody")
        assert told.status == 1 and "nothing is stored of the user 'nobody'" in told.error
    told = run("privacy", "status", "ann")
    assert told.status == 1 and "`burnish privacy forget` asks for one" in told.error
