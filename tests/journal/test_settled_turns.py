"""Turns as canaries count them, and a rollback, on both databases."""

import time
from typing import Any

import pytest
from sqlalchemy import update

from burnish.adapters.evidence.settled_turns import Cursor, Settled, latest, settled
from burnish.adapters.registry import agents, auto_rollback, canaries, lifecycle
from burnish.journal import Journal
from burnish.journal.evidence import reward_of
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow, SessionRow
from burnish.journal.turns import record_judgement
from burnish.records import CanaryState, FeedbackSource, NextStateKind, Observation, Provenance, SignalKind, TargetKind
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_turn

NOW = 10_000.0


def add(journal: Journal, name: str, ended_at: float, *, version: int = 1, **state: Any) -> str:
    fields = {
        "interaction_id": name,
        "version": version,
        "started_at": ended_at - 2.0,
        "ended_at": ended_at,
        "user": "ana",
    }
    return add_turn(journal, interaction([user("hi")], **fields), **state)


def judge(journal: Journal, name: str, score: int) -> None:
    with journal.write() as session:
        record_judgement(session, judgement(name, score), "next_state")
        session.get_one(InteractionRow, name).is_ready = True


def read(journal: Journal, cursor: Cursor, now: float = NOW, **changes: Any) -> list[Settled]:
    with journal.read() as session:
        return settled(session, "agent", (1, 0), cursor, patience=changes.pop("patience", 900.0), now=now, **changes)


def test_every_turn_once_whatever_the_order_of_verdicts(any_journal: Journal) -> None:
    cursor = Cursor(NOW - 100, [])
    for i in range(6):
        add(any_journal, f"t{i}", NOW - 50 + i, version=i % 2)
    add(any_journal, "before", NOW - 200)
    add(any_journal, "other", NOW - 40, version=7)
    add(any_journal, "aside", NOW - 40, kind="side", is_ready=True)
    assert read(any_journal, cursor) == []
    for name, score in (("t4", 1), ("t1", -1)):
        judge(any_journal, name, score)
    found = read(any_journal, cursor)
    assert [(each.interaction_id, each.version, each.turn.reward) for each in found] == [
        ("t1", 1, False),
        ("t4", 0, True),
    ]
    assert (found[0].user, found[0].turn.length, found[0].turn.latency) == ("ana", 2.0, 2.0)
    assert read(any_journal, cursor) == []
    for name in ("t0", "t2", "t3", "t5"):
        judge(any_journal, name, 1)
    first = read(any_journal, cursor, most=3)
    assert [each.interaction_id for each in first + read(any_journal, cursor, most=3)] == ["t0", "t2", "t3", "t5"]
    assert read(any_journal, cursor) == []
    add(any_journal, "late", NOW - 45)  # a slow gateway's segment
    judge(any_journal, "late", 1)
    assert [each.interaction_id for each in read(any_journal, cursor)] == ["late"]
    assert set(cursor.seen) <= {"t0", "t1", "t2", "t3", "t4", "t5", "late"}


def test_patience_ends_and_the_cursor_forgets_what_lies_far_behind(any_journal: Journal) -> None:
    cursor = Cursor(NOW - 100, [])
    add(any_journal, "silent", NOW - 50)
    assert read(any_journal, cursor) == []
    assert cursor.since <= NOW - 50
    (given_up,) = read(any_journal, cursor, now=NOW + 900)
    assert (given_up.interaction_id, given_up.turn.reward) == ("silent", None)
    add(any_journal, "next", NOW + 1000)
    judge(any_journal, "next", 1)
    assert len(read(any_journal, cursor, now=NOW + 1001)) == 1
    assert read(any_journal, cursor, now=NOW + 1001) == []
    assert cursor.seen == ["next"]
    assert cursor.since == pytest.approx(NOW + 940, abs=0.1)


def test_what_a_turn_shows(any_journal: Journal) -> None:
    cursor = Cursor(NOW - 100, [])
    for name in ("liked", "disliked", "harness", "failed", "fine", "their fault"):
        add(any_journal, name, NOW - 50, is_ready=True)
    add_feedback(any_journal, "liked", -1.0)
    add_feedback(any_journal, "liked", 1.0)
    add_feedback(any_journal, "disliked", -1.0)
    add_feedback(any_journal, "harness", 1.0, source=FeedbackSource.HARNESS)
    for name, signals in (
        ("failed", [(SignalKind.EXIT_CODE, 2.0)]),
        ("fine", []),
        ("their fault", [(SignalKind.HTTP_STATUS, 503.0)]),
    ):
        trees = [{"kind": kind, "value": value, "provenance": Provenance.TOOL, "detail": ""} for kind, value in signals]
        with any_journal.write() as session:
            row = NextStateRow(
                interaction_id=name, kind=NextStateKind.TOOL_RESULT, message_digests=[], signals=trees, created_at=1.0
            )
            session.add(row)
    shown = {each.interaction_id: each.turn for each in read(any_journal, cursor)}
    assert [shown[name].feedback for name in ("liked", "disliked", "harness", "fine")] == [True, False, None, None]
    assert [shown[name].reward for name in ("liked", "disliked", "harness", "fine")] == [True, False, None, None]
    assert [shown[name].tools for name in ("failed", "fine", "their fault", "liked")] == [False, True, None, None]


def test_the_outcome_of_a_tool_session_counts_once(any_journal: Journal) -> None:
    for i in range(4):
        add(any_journal, f"t{i}", NOW - 50 + i, session_id="s", is_ready=True)
    add_feedback(any_journal, "t3", None, outcome=-1.0, about=TargetKind.SESSION)
    with any_journal.write() as session:
        row = {"tenant": "default", "key_id": "key-1", "agent": "agent", "started_at": 1.0, "last_at": 1.0}
        session.add(SessionRow(session_id="s", has_tools=True, **row))
        session.execute(update(FeedbackRow).values(session_id="s"))
    judge(any_journal, "t1", 1)
    with any_journal.read() as session:
        assert [reward_of(session, f"t{i}").source for i in range(4)] == ["integrated"] * 4  # type: ignore[union-attr]
    shown = [each.turn.reward for each in read(any_journal, Cursor(NOW - 100, []))]
    assert shown == [None, True, None, False]  # t1 by its own verdict, t3 by the outcome


def test_the_latest_judged_turns_oldest_first(any_journal: Journal) -> None:
    for i in range(5):
        add(any_journal, f"t{i}", NOW + i, is_ready=i != 2)
    with any_journal.read() as session:
        found = latest(session, "agent", 1, 3, NOW + 3.5)
    assert [each.interaction_id for each in found] == ["t0", "t1", "t3"]


def test_a_rollback_is_one_transaction(any_journal: Journal) -> None:
    add(any_journal, "row", time.time(), version=2)
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
        for number in (1, 2):
            lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate")
        watch = canaries.begin(
            session, "agent", 2, 1, Observation.WATCH, share=0.0, actor="gate", evidence={"comparison": {"a": 1}}
        )
        lifecycle.announce(session, "agent", 3, parent=2, step_id=None, digest="d")
        assert canaries.split_of(session, "agent") is None
        assert auto_rollback.orphaned(session, "agent", 3) is None
    with any_journal.write() as session:
        done = auto_rollback.roll_back(session, watch, "worse", max_rollbacks=1)
    assert (done["rows_dropped"], done["refused"], done["rollbacks_today"], done["learning_paused"]) == (
        1,
        [3],
        1,
        True,
    )
    with any_journal.read() as session:
        assert lifecycle.alias(session, "agent") == 1
        assert lifecycle.alias(session, "agent", lifecycle.PREVIOUS) is None
        assert lifecycle.version(session, "agent", 2).state == "rolled_back"
        assert agents.find(session, "agent").held == "v2 was rolled back by itself: worse"
        assert canaries.history(session, "agent", 1)[0].state == CanaryState.STOPPED
        found = auto_rollback.orphaned(session, "agent", 3)
        assert found == auto_rollback.Orphan("its parent agent@v2 was rolled back", comes_again=False)
        assert not auto_rollback.has_rows(session, "agent", 2, 0.0)
