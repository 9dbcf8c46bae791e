"""The time for a text that a client wrote grows with its length, and none of it is spent under the write lock."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from sqlmodel import Session

from burnish.journal import Journal, linked_turns
from burnish.journal.bulk import as_given
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow
from burnish.records import Message, Provenance, TargetKind
from burnish.segments import frames
from burnish.server.ingest import feedback, linking, recent_messages, turn_kind
from burnish.server.ingest.ingester import Ingester
from burnish.server.ingest.linking import MOST_PLACES, Trace
from burnish.server.ingest.next_state import is_of_the_web
from burnish.server.ingest.patterns import harness_patterns
from burnish.server.ingest.patterns.tool_signals import signals_of
from burnish.server.ingest.prepared import Prepared
from burnish.server.ingest.turn_kind import QUOTING, UserWords
from tests.cost import LENGTHS, superlinear
from tests.factories import assistant, interaction, user
from tests.factories import feedback as said
from tests.server.ingest.pen import Pen, follow, ingest, parents
from tests.statements import noted, plans

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def prepared(text: str) -> None:
    Prepared.of(interaction([user("q"), assistant(text), user(text)], text))


def repeated(text: str) -> None:
    linking.likeness(assistant(text), assistant(f"x{text[::-1]}"))
    linking.likeness(assistant(text), assistant(f"{text[: len(text) // 2]}x{text[len(text) // 2 :]}"))


def arguments(text: str) -> None:
    linking.is_same(calling(text), calling(text))


def calling(text: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": text, "arguments": text}}]}


def signals(text: str) -> None:
    signals_of(text, Provenance.TOOL)


@pytest.mark.parametrize("most", LENGTHS)
@pytest.mark.parametrize(
    "work",
    [prepared, repeated, arguments, signals, harness_patterns.is_result, harness_patterns.is_summary, is_of_the_web],
)
def test_the_time_for_a_text_grows_with_its_length(work: Callable[[str], Any], most: int) -> None:
    assert superlinear(work, most) == []


def test_a_long_request_is_searched_for_quotes_at_its_ends_only() -> None:
    said = UserWords.of("What is the capital of France?", "h")
    for place in (0, 40_000 - 100):
        asked = "x" * place + said.text + "x" * (40_000 - place)
        assert turn_kind.is_about([user(asked)], None, [said]) is (place > 0)  # it begins with it: no quote
    hidden = "x" * 2 * QUOTING + said.text + "x" * 2 * QUOTING
    assert not turn_kind.is_about([user(hidden)], None, [said])


def test_only_the_last_repeated_replies_are_looked_up() -> None:
    history = [message for k in range(1000) for message in (user(f"q{k}"), assistant(f"{k} " + "long " * 30))]
    trace = Trace(interaction([*history, user("on")]))
    places = trace.continuations()
    assert len(places) == len(trace.repeated_words()) == MOST_PLACES
    assert places[0][0] == len(history)


def test_a_record_is_parsed_before_the_write_lock_is_taken(
    journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_locked, write, prepare = False, Journal.write, linking.prefix_hashes

    @contextmanager
    def locked(self: Journal) -> Iterator[Session]:
        nonlocal is_locked
        with write(self) as session:
            is_locked = True
            yield session
        is_locked = False

    def checked(scope: str, messages: Sequence[Message]) -> list[str]:
        assert not is_locked, "messages are parsed and hashed under the write lock"
        return prepare(scope, messages)

    monkeypatch.setattr(Journal, "write", locked)
    monkeypatch.setattr(linking, "prefix_hashes", checked)
    first = pen.say([user("hi")], "Calling tools: [{" * 1000)
    second = pen.say(follow(first, {"role": "tool", "content": "ok"}), "yes")
    assert ingest(journal, pen) == 2
    assert parents(journal)[second.interaction_id] == first.interaction_id


@pytest.mark.parametrize("depth", [600, 980, 100_000])
def test_nesting_of_any_depth_costs_its_own_record_at_most(journal: Journal, pen: Pen, depth: int) -> None:
    text = "[" * depth + "]" * depth
    called = pen.say([user("the call")], calling(text))
    deep = interaction([user("deep")], ended_at=called.ended_at + 0.1)
    fields = {name: getattr(deep, name) for name in frames._BEGUN}
    begun = frames.Begun(fields | {"messages": [msgspec.Raw(f'{{"role":"user","content":{text}}}'.encode())]})
    rest = {name: getattr(deep, name) for name in frames._RESULT}
    with (pen.folder / "a.seg").open("ab") as segment:
        segment.write(b"".join(begun.finished(rest, deep.prompt_ids, deep.token_ids, deep.logprobs)))
    after = pen.say([user("after")], "c")
    assert ingest(journal, pen) == 3
    assert {called.interaction_id, after.interaction_id} <= parents(journal).keys()
    assert ingest(journal, pen) == 0


def test_a_number_of_any_size_is_no_exit_code(journal: Journal, pen: Pen) -> None:
    call = calling("{}")
    first = pen.say([user("run it")], call, finish_reason="tool_calls")
    result = {"role": "tool", "tool_call_id": "c", "content": '{"exit_code": 1' + "0" * 400 + "}"}
    second = pen.say(follow(first, result), "done")
    ingest(journal, pen)
    assert second.interaction_id in parents(journal)
    with journal.read() as session:
        assert session.get_one(NextStateRow, first.interaction_id).signals == []
        assert session.query(InteractionRow).count() == 2
    assert json.loads(result["content"])["exit_code"] > 2**64


def test_of_many_identical_openings_only_the_latest_are_loaded(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many sessions opens alike and goes on before the next one opens."""
    n_loaded: list[int] = []
    alike = linked_turns.alike

    def counted(*arguments: Any, **options: Any) -> Any:
        found = alike(*arguments, **options)
        n_loaded.extend(map(len, found.values()))
        return found

    monkeypatch.setattr(linked_turns, "alike", counted)
    expected: dict[str, str | None] = {}
    for i in range(linked_turns.MOST_ALIKE + 20):
        opening = pen.say([user("hi")], "Hello!", interaction_id=f"o{i:03d}", request_id=f"r{i}")
        pen.say(follow(opening, user(f"it is {i}")), f"{i}!", interaction_id=f"f{i:03d}", request_id=f"s{i}")
        expected |= {f"o{i:03d}": None, f"f{i:03d}": f"o{i:03d}"}
        if i % 20 == 0:
            ingest(any_journal, pen)
    ingest(any_journal, pen)
    assert parents(any_journal) == expected
    assert 1 < max(n_loaded) <= linked_turns.MOST_ALIKE


@pytest.mark.parametrize("place", linked_turns.PLACES)
def test_the_latest_replies_alike_are_found_without_a_sort(journal: Journal, place: str) -> None:
    with journal.read() as session:
        statement = f"EXPLAIN QUERY PLAN {linked_turns._alike('sqlite', place, False).text}"
        plan = session.connection().exec_driver_sql(statement, {"given": as_given([("h", "r", 1.0)])})
        steps = [row[-1] for row in plan]
    assert any("ix_interaction_week" in step and "<expr>=? AND" in step for step in steps), steps
    scans = ["SCAN json_each VIRTUAL TABLE INDEX 1:", "SCAN CONSTANT ROW", "SCAN week"]
    assert {step for step in steps if step.startswith("SCAN")} == set(scans), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


@pytest.mark.parametrize("place", linked_turns.KEPT_OUT_PLACES)
def test_turns_that_are_kept_out_are_found_by_an_index_of_their_own(journal: Journal, place: str) -> None:
    with journal.read() as session:
        statement = f"EXPLAIN QUERY PLAN {linked_turns._alike('sqlite', place, True).text}"
        plan = session.connection().exec_driver_sql(statement, {"given": as_given([("h", "r", 1.0)])})
        steps = [row[-1] for row in plan]
    name = place.removesuffix("_hash")
    assert f"SEARCH one USING INDEX ix_interaction_kept_out_{name} ({place}=?)" in steps, steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_what_the_ingester_reads_does_not_grow_with_the_journal(journal: Journal, pen: Pen) -> None:
    """Calls that stood alone are read from the latest on. Of the sessions, only open ones are looked at."""
    pen.say([user("hi")], "a")
    ingest(journal, pen)
    pen.say([user("hi")], "a")
    with noted(journal.engine) as ran:
        Ingester(journal, pen.folder, session_timeout=1.0).run_once()
    found = dict(plans(journal.engine, ran))
    for statement, steps in found.items():
        big = tuple(f"SCAN {table}" for table in ("interaction", "turn", "one", "session", "feedback"))
        assert [step for step in steps if step.startswith(big)] == [], statement
    (lone,) = (steps for statement, steps in found.items() if "json_array_length(prompt_parts)" in statement)
    assert lone == ["SEARCH interaction USING INDEX ix_interaction_ended_at (ended_at>?)"]
    assert any("turn.session_id IN" in statement for statement in found)  # a session was closed
    (closing,) = {statement for statement, _ in ran if statement.startswith("UPDATE session SET closed_at")}
    with journal.engine.connect() as connection:
        (step,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {closing}", (0.0, 0.0))
    assert step[3] == "SEARCH session USING INDEX ix_session_open (last_at<?)"


def test_many_records_about_one_conversation_cost_its_turns_once_a_batch(
    journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = pen.say([user("hi")], "a", quoted_session="walk", interaction_id="t0", tools=[TOOL])
    for number in range(1, 8):
        turn = pen.say(follow(turn, user("on")), "a", quoted_session="walk", interaction_id=f"t{number}", tools=[TOOL])
    ingest(journal, pen)
    settled: list[str] = []
    settle = feedback.settle
    monkeypatch.setattr(feedback, "settle", lambda session, *names: (settled.extend(names), settle(session, *names)))
    n_records = 40
    monkeypatch.setattr("burnish.server.ingest.ingester.FIRST_GUESS", 1e-9)  # all of them in one transaction
    for number in range(n_records):
        pen.write(said("walk", 1.0, feedback_id=f"f{number}", about=TargetKind.SESSION, created_at=2000.0 + number))
    ingest(journal, pen)
    assert sorted(settled) == sorted(f"t{number}" for number in range(8))


@pytest.mark.parametrize("is_first", [True, False])
def test_of_one_voice_on_one_target_only_so_many_count(any_journal: Journal, pen: Pen, is_first: bool) -> None:
    def attached() -> set[str]:
        with any_journal.read() as session:
            rows = session.query(FeedbackRow).filter(FeedbackRow.interaction_id.is_not(None))  # type: ignore[union-attr]
            return {row.feedback_id for row in rows}

    def say(*names: str, **changes: Any) -> None:
        for number, name in enumerate(names):
            given = {"feedback_id": name, "created_at": 2000.0 + number, "comment": f"words {name}"} | changes
            pen.write(said("t", -1.0, **given), gateway="b")

    if not is_first:
        pen.say([user("hi")], "a", interaction_id="t", ended_at=3000.0)
        ingest(any_journal, pen)
    names = [f"f{number:03d}" for number in range(feedback.MOST_OF_A_VOICE + 9)]
    say(*names)
    say("another", key_id="key-2")
    ingest(any_journal, pen)
    if is_first:
        pen.say([user("hi")], "a", interaction_id="t", ended_at=3000.0)
        ingest(any_journal, pen)
    assert attached() == {*names[: feedback.MOST_OF_A_VOICE], "another"}
    say(names[0], created_at=4000.0, comment="changed")
    say(names[-1], created_at=4000.0)
    ingest(any_journal, pen)
    assert attached() == {*names[: feedback.MOST_OF_A_VOICE], "another"}
    with any_journal.read() as session:
        assert session.get_one(FeedbackRow, names[0]).comment == "changed"
        assert session.get_one(FeedbackRow, names[-1]).expired_at is not None


def test_earlier_calls_that_are_read_again_have_a_bound(
    journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record with tools looks through the caller's latest calls without them: one may ask for its title."""
    monkeypatch.setattr(recent_messages, "MAX_LOOKED_THROUGH", 100)
    ids = array("i", range(10))
    for number in range(8):
        pen.say([user(f"call {number}")], "a", interaction_id=f"c{number}", prompt_ids=ids)
    pen.say([user("a large one")], "a", interaction_id="large", prompt_ids=array("i", range(1000)))
    ingest(journal, pen)
    looked: list[str] = []
    lone = recent_messages.Recent.lone
    monkeypatch.setattr(recent_messages.Recent, "lone", lambda *given: looked.extend(lone(*given)) or lone(*given))
    pen.say([user("do it")], "a", tools=[TOOL])
    ingest(journal, pen)  # a new ingester reads them from the journal
    assert looked == ["c7", "c6"]
