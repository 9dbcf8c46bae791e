"""`burnish learner`: its output for people and for programs, and bad input."""

import json
import re
import time
from pathlib import Path

import pytest

from burnish.adapters.registry import lifecycle
from burnish.journal import Journal
from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import AgentRow, AuditRow, InteractionRow, SampleRow, StepRow
from burnish.records import StepOutcome
from tests.cli.conftest import Run
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """One step of two rows, one of them idle, one waiting turn and one dropped turn."""
    (tmp_path / ".burnish").mkdir()
    journal = Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db")
    for name in ("a", "b", "c", "d"):
        add_turn(journal, interaction([user(name)], "x", interaction_id=name), is_ready=name == "c")
    add_feedback(journal, "c", 1.0)
    with journal.write() as session:
        session.query(InteractionRow).filter_by(interaction_id="d").one().skip_reason = "stale: 5 versions behind"
        step = StepRow(
            agent="agent",
            version=1,
            parent=0,
            outcome=StepOutcome.PUBLISHED,
            metrics={"grad_norm": 0.25},
            started_at=5.0,
        )
        session.add(step)
        session.flush()
        assert step.step_id is not None
        session.add(
            SampleRow(
                step_id=step.step_id,
                interaction_id="a",
                reward=-1.0,
                reward_source="judge",
                record_ids=["j"],
                hint="Be brief.",
            )
        )
        session.add(
            SampleRow(
                step_id=step.step_id,
                interaction_id="b",
                reward=0.0,
                reward_source="judge",
                record_ids=[],
                skipped="no advantage and no hint",
            )
        )
    return journal


def test_the_standing_says_what_waits_and_what_was_dropped(run: Run, journal: Journal) -> None:
    told = json.loads(run("learner", "status", "--json").out)
    assert (told["n_ready"], told["on_trial"], told["dropped"]) == (1, None, {"stale": 1})
    assert told["last_step"]["version"] == 1
    shown = run("learner", "status").out
    assert "waits for 15 more rated replies (1 of 16)" in shown and "stale 1" in shown and "v1 published" in shown


def test_a_step_under_way_is_said_as_by_status_and_its_rows_no_longer_wait(run: Run, journal: Journal) -> None:
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
        session.flush()
        session.get_one(AgentRow, "agent").settings = {"learner.min_rows": 2}
        step = StepRow(agent="agent", version=2, parent=0, outcome=StepOutcome.OPEN, metrics={}, started_at=time.time())
        session.add(step)
        session.flush()
        assert step.step_id is not None
        session.add(SampleRow(step_id=step.step_id, interaction_id="c", record_ids=[]))
    told = run("learner", "status", "--json").json
    assert (told["n_ready"], told["n_in_step"], told["oldest_waits_s"], told["min_rows"]) == (0, 1, None, 2)
    assert re.fullmatch(r"v2 is being trained, for \d s", told["learning"])
    assert told["learning"][:18] == run("status", "--json").json["learning"][:18]
    shown = run("learner", "status").out
    assert "v2 is being trained" in shown and "v2 is under way" in shown and "is due" not in shown


def test_the_runs_and_one_step_whole(run: Run, journal: Journal) -> None:
    (told,) = json.loads(run("learner", "runs", "--json").out)
    assert (told["n_rows"], told["n_idle"], told["n_hints"], told["metrics"]) == (2, 1, 1, {"grad_norm": 0.25})
    assert "published" in run("learner", "runs").out
    whole = json.loads(run("learner", "show", "1", "--json").out)
    assert [row["skipped"] for row in whole["rows"]] == [None, "no advantage and no hint"]
    shown = run("learner", "show", "1").out
    assert "Be brief." in shown and "no advantage" in shown and "0.25" in shown


def test_the_lineage_says_why_a_hint_was_not_used_as_the_step_does(run: Run, journal: Journal) -> None:
    with journal.write() as session:
        (row,) = session.query(SampleRow).filter_by(interaction_id="a")
        row.hint_status = UNBACKED
        lifecycle.announce(session, "agent", 1, parent=0, step_id=row.step_id, digest="d")
    assert all("hint: unbacked" in run(*verb, "1").out for verb in (("learner", "show"), ("versions", "lineage")))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["learner", "show", "7"], "no step made agent@v7; `burnish learner runs` lists the steps"),
        (["learner", "reproduce", "7"], "agent"),
        (["learner", "reproduce", "1", "--output", "."], "expected a new directory, but . exists"),
    ],
)
def test_what_cannot_be_shown_is_one_line(run: Run, journal: Journal, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.status == 1 and said in done.error and "Traceback" not in done.error


def test_before_the_first_step_it_says_what_it_waits_for(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".burnish").mkdir()
    Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db").close()
    assert "has taken no step yet" in run("learner", "runs").out


def test_learning_is_paused_and_taken_up_again(run: Run, journal: Journal) -> None:
    assert "no agent 'agent'; `burnish agents list`" in run("learner", "pause").error
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    for verb, is_paused in (("pause", True), ("resume", False)):
        assert run("learner", verb).status == 0
        assert json.loads(run("learner", "status", "--json").out)["is_paused"] is is_paused


def test_a_step_is_asked_for_where_something_can_come_of_it(run: Run, journal: Journal) -> None:
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    assert run("learner", "step", "--json").json["n_ready"] == 1
    assert "takes a step on 1 ready turn when" in run("learner", "step").out
    with journal.write() as session:
        lifecycle.announce(session, "agent", 2, parent=0, step_id=None, digest="d")
    assert "agent@v2 is still on trial" in run("learner", "step").error
    with journal.write() as session:
        lifecycle.promote(session, "agent", 2, expected=0, actor="gate")
        session.query(InteractionRow).filter_by(interaction_id="c").one().is_ready = False
    assert "no turn of 'agent' is ready" in run("learner", "step").error
    with journal.read() as session:
        assert [row.action for row in session.query(AuditRow).order_by("audit_id")][:2] == ["step", "step"]
