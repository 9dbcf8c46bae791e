"""`burnish canary`: its tables, and its questions before it ends anything."""

import io
from pathlib import Path

import pytest

from burnish.adapters.evidence.comparison import Comparison, Rules, Turn
from burnish.adapters.registry import agents, canaries, lifecycle
from burnish.journal import Journal
from burnish.records import Observation
from tests.cli.conftest import Run


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """v1 is live, v2 is on canary and has lost ten pairs."""
    (tmp_path / ".burnish").mkdir()
    journal = Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db")
    seen = Comparison(Rules())
    for _ in range(10):
        for is_version in (False, True):
            seen.add(is_version, "u", Turn(not is_version, None, None, 10.0, 1.0))
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
        for number in (1, 2):
            lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest="d")
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate")
        evidence = {"comparison": seen.as_dict(), "cursor": {"since": 0.0, "seen": []}}
        canaries.begin(session, "agent", 2, 1, Observation.CANARY, share=0.1, actor="gate", evidence=evidence)
    return journal


def test_status_shows_turns_and_evidence(run: Run, journal: Journal) -> None:
    shown = run("canary", "status").out
    assert "v1 is live; versions are promoted automatically" in shown
    assert "canary of v2" in shown and "0 of 10 good; 10 of 10" in shown
    assert "reward 52 (acts at 200)" in shown
    told = run("canary", "status", "--json").json
    assert told["observations"][0]["turns"]["version"]["judged"] == 10


def test_status_names_the_worst_slice_of_the_live_version(run: Run, journal: Journal) -> None:
    seen = Comparison(Rules())
    for number in range(40):
        for is_version in (False, True):
            route = "route: messages" if number % 4 else "route: chat"
            is_good = not is_version or number % 4 == 0
            seen.add(is_version, f"u{number}", Turn(is_good, None, None, 10.0, 1.0, f"t{number}", (route,)))
    evidence = {"comparison": seen.as_dict(), "cursor": {"since": 0.0, "seen": []}}
    with journal.write() as session:
        canaries.begin(session, "agent", 1, 0, Observation.WATCH, share=0.0, actor="gate", evidence=evidence)
    shown = run("canary", "status").out
    assert "watch of v1, 2 slices: worst in 'route: messages'" in shown
    slices = run("canary", "status", "--json").json["slices"]
    assert (slices["of"], slices["version"], slices["baseline"], slices["worst"]) == ("watch", 1, 0, "route: messages")
    worst, even = slices["by_slice"]
    assert (worst["version"]["share"], worst["baseline"]["share"], worst["fall"], even["fall"]) == (0.0, 1.0, 1.0, 0.0)
    assert worst["state"] == "fallen" and worst["lost"][-1] == "t39"


def test_a_hold_is_told(run: Run, journal: Journal) -> None:
    with journal.write() as session:
        agents.hold(session, "agent", "v3 was rolled back by itself", actor="watch")
        agents.set_paused(session, "agent", True, actor="watch")
    shown = run("canary", "status").out
    assert "on hold, nothing is promoted automatically: v3 was rolled back by itself; learning is paused" in shown


def test_stopping_asks_first(run: Run, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("canary", "stop").status == 1
    assert run("canary", "status", "--json").json["observations"][0]["state"] == "running"
    told = run("canary", "stop", "--yes", "--reason", "rude", "--json").json
    assert (told["status"], told["agent"], told["kind"]) == ("agent@v2 was refused: rude", "agent", "canary")
    assert "canary of v2 stopped: rude" in run("canary", "status").out
    assert "no canary of 'agent' runs" in run("canary", "stop", "--yes").error
    assert "no watch of 'agent' runs" in run("canary", "stop", "--watch", "--yes").error
    assert "agent@v2 was refused: canary: rude" in run("canary", "start", "2", "--yes").error
    assert run("canary", "start", "9", "--yes").error.startswith("burnish: no version agent@v9")


def test_an_empty_journal_has_none(run: Run, state: Path) -> None:
    assert "no canary and no watch so far" in run("canary", "status").out
