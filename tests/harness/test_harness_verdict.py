"""The verdict sees what is wrong: a journal that is right passes, and each way of falsifying it is named."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ColumnElement, update
from sqlmodel import SQLModel, col

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, NextStateRow
from burnish.server.ingest.ingester import SETTLE_SECONDS, Ingester
from burnish.testing import Script, ScriptedEngine, Side, Truth
from burnish.testing.stub_reply import Scripted
from tests.harness.scenes import WALK
from tests.harness.verdict import compare
from tests.server.gateway.gateways import ENGINE_KEY, Running, serve

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SCRIPT = Script([WALK], [Side("title", "a title for", Scripted("A walk"))])


@dataclass
class Recorded:
    """A walk with a title asked for on the side, ingested."""

    journal: Journal
    truths: list[Truth]

    def problems(self) -> str:
        return "\n".join(compare(self.truths, self.journal).problems)

    def row(self, step: int) -> str:
        """The request id of a step of the first walk."""
        return next(truth.request_id for truth in self.truths if truth.run == "walk.1" and truth.step == step)

    def falsify(self, table: type[SQLModel], condition: ColumnElement[bool], **values: Any) -> None:
        with self.journal.write() as session:
            assert session.connection().execute(update(table).where(condition).values(**values)).rowcount == 1


def walk(gateway: Running, run: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"scene:walk.{run} please"}]
    for _ in range(3):
        reply = gateway.chat("talker", messages=messages, tools=[TOOL]).json()["choices"][0]["message"]
        messages.append(reply)
        for call in reply.get("tool_calls") or ():
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "seen"})
    title = [{"role": "user", "content": f"Find a title for: scene:walk.{run} please"}]
    assert gateway.chat("talker", messages=title).json()["choices"][0]["message"]["content"] == "A walk"


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    loaded = {"agent@v1": "/a/1", "agent@v2": "/a/2"}
    with (
        ScriptedEngine(script=SCRIPT, api_key=ENGINE_KEY, loaded=loaded) as engine,
        serve(tmp_path / "s", engine) as gateway,
    ):
        walk(gateway, "1")
        walk(gateway, "2")
    journal = Journal.open(f"sqlite:///{tmp_path / 'journal.db'}")
    time.sleep(2 * SETTLE_SECONDS)
    Ingester(journal, gateway.settings.segments_dir, session_timeout=3600).run_once()
    yield Recorded(journal, engine.truths)
    journal.close()


def test_what_is_right_passes(recorded: Recorded) -> None:
    verdict = compare(recorded.truths, recorded.journal)
    assert verdict.problems == []
    assert (verdict.n_turns, verdict.n_eligible, verdict.n_trainable, verdict.n_unwanted) == (8, 6, 6, 0)
    assert (verdict.n_sessions, verdict.n_sessions_right, verdict.routes) == (2, 2, {"chat"})


FALSE: dict[str, tuple[int, dict[str, Any], str]] = {
    "ids": (1, {"token_ids": b"\0" * 8}, "the token ids differ"),
    "log-probs": (1, {"logprobs": b"\0" * 8}, "the log-probs differ"),
    "quarantine": (1, {"quarantine": "bad"}, "not whole"),
    "kind": (2, {"kind": "side"}, "taken for side"),
    "session": (2, {"session_id": "elsewhere"}, "its turns are in 2 sessions"),
    "parent": (3, {"parent_id": None}, "linked to nothing"),
    "fate": (2, {"skip_reason": "opted out"}, "not trained: opted out"),
}


@pytest.mark.parametrize("what", FALSE)
def test_what_is_false_is_named(recorded: Recorded, what: str) -> None:
    step, values, problem = FALSE[what]
    recorded.falsify(InteractionRow, col(InteractionRow.request_id) == recorded.row(step), **values)
    assert problem in recorded.problems()


def test_joined_conversations_are_named(recorded: Recorded) -> None:
    with recorded.journal.write() as session:
        session.connection().execute(update(InteractionRow).values(session_id="one"))
    assert "shared with ['walk.2']" in recorded.problems()


def test_a_side_turn_that_would_be_trained_is_named(recorded: Recorded) -> None:
    side = next(truth.request_id for truth in recorded.truths if truth.side)
    recorded.falsify(InteractionRow, col(InteractionRow.request_id) == side, skip_reason=None)
    assert "would be trained" in recorded.problems()


def test_a_wrong_next_state_is_named(recorded: Recorded) -> None:
    first = f"chatcmpl-{recorded.row(1)}"
    recorded.falsify(NextStateRow, col(NextStateRow.interaction_id) == first, kind="user_reply")
    assert "2 tool calls, 2 results recorded as user_reply" in recorded.problems()
    recorded.falsify(NextStateRow, col(NextStateRow.interaction_id) == first, follower_id=None)
    assert "something that did not follow" in recorded.problems()
