"""`burnish ui`, and the lists of turns and feedback that the pages show too."""

import socket
from pathlib import Path

import pytest

from burnish.adapters.serving.prepare import prepare, ui_key_file
from burnish.config import Gateway, Settings
from burnish.journal import Journal
from burnish.keys import UI, digest
from burnish.processes.parts import parts_of
from burnish.server.gateway.process import check_bind
from tests.cli.conftest import Run
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn


def test_a_link_is_printed_and_kept_for_the_pages(run: Run, state: Path) -> None:
    printed = run("ui", "--link").out.strip()
    origin, _, token = printed.partition("/login?token=")
    assert origin == "http://127.0.0.1:8703"
    kept = state / "run" / "ui.link"
    assert kept.read_text().strip() == token and kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("command", "setting"),
    [(["ui"], "gateway.ui_port"), (["run", "gateway"], "gateway.port"), (["run", "engine"], "engine.port")],
)
def test_a_taken_port_is_one_line_with_the_setting(run: Run, state: Path, command: list[str], setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(*command, "--set", f"{setting}={port}")
    assert (done.status, done.out) == (1, "")
    said = f"burnish: {setting}: port {port} of 127.0.0.1 is taken; end the process that listens there, or choose"
    assert done.error.startswith(said) and done.error.count("\n") == 1
    assert not (state / "run" / "ui.link").exists()


def test_the_link_is_told_when_the_pages_listen(run: Run, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[bool] = []

    def serve(port: int, _: str, *, listener: socket.socket, **__: object) -> None:
        with listener, socket.create_connection(("127.0.0.1", port)):
            served.append((state / "run" / "ui.link").exists())

    monkeypatch.setattr("burnish.server.ui.process.run", serve)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "Sign in once: http" in run("ui", "--set", f"gateway.ui_port={port}").out and served == [True]


def test_without_a_port_there_are_no_pages(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_GATEWAY__UI_PORT", "0")
    done = run("ui", "--link")
    assert (done.status, "which means no pages" in done.error) == (1, True)
    settings = Settings(state_dir=tmp_path / "s", gateway=Gateway(ui_port=0))
    assert "ui" not in [part.name for part in parts_of(settings, {})]
    prepare(settings).close()
    assert not ui_key_file(settings).exists()


def test_the_pages_key_is_no_admins_and_no_clients(tmp_path: Path) -> None:
    from burnish import serving_table
    from burnish.errors import ConfigError

    settings = Settings(state_dir=tmp_path / "s", gateway=Gateway(host="0.0.0.0"))
    prepare(settings).close()
    known = serving_table.watch(settings.run_dir / "routes.json").current().keys
    own = known[digest(ui_key_file(settings).read_text().strip())]
    assert (own.key_id, sorted(own.scopes)) == (UI, ["feedback", "inference", "operator"])
    assert "ui" in [part.name for part in parts_of(settings, {})]
    with pytest.raises(ConfigError, match="there is no inference key"):
        check_bind(settings)  # it opens no gateway to the world


def test_turns_are_found_by_text_and_sessions_and_feedback_are_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".burnish").mkdir()
    journal = Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db")
    add_turn(journal, interaction([user("a broken hinge")], "Sorry.", interaction_id="t1", version=2), session_id="s")
    add_turn(journal, interaction([user("an invoice")], "Paid.", interaction_id="t2"), skip_reason="stale: 5")
    add_feedback(journal, "t1", -1.0, comment="too short")
    journal.close()
    assert [line["turn"] for line in run("turns", "list", "--text", "HINGE", "--json").json] == ["t1"]
    assert [line["turn"] for line in run("turns", "list", "--fate", "dropped", "--json").json] == ["t2"]
    assert [line["turn"] for line in run("turns", "list", "--version", "2", "--json").json] == ["t1"]
    session = run("turns", "session", "s").out
    assert "a broken hinge" in session and "Sorry." in session
    said = run("turns", "feedback").out
    assert "too short" in said and "t1" in said and "v2" in said
    assert run("turns", "feedback", "--said", "correction", "--json").json == []
