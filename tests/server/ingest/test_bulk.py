"""Filing many records at once is filing them one by one: the same rows, whatever the transactions and the crashes."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from burnish.journal import Journal
from burnish.records import Feedback, Interaction, TargetKind
from burnish.server.ingest import ingester as module
from burnish.server.ingest import working_set
from burnish.server.ingest.filing import Filing
from burnish.server.ingest.ingester import Ingester
from burnish.server.ingest.working_set import WorkingSet
from tests.factories import assistant, feedback, user
from tests.server.ingest.pen import FOREVER, Pen, follow, ingest, parents

TOOLS = ({"type": "function", "function": {"name": "look"}},)
SYSTEM = {"role": "system", "content": "You are a coding agent in a repository."}
TABLES = ("interaction", "session", "blob", "prompt_part", "next_state", "judge_job", "feedback", "segment")
CLOCKS = {"judge_job": ("created_at",)}
"""Columns that say when the ingester ran."""


def rows(journal: Journal) -> dict[str, list[dict[str, Any]]]:
    """All that ingestion writes, without the times at which it ran."""
    found: dict[str, list[dict[str, Any]]] = {}
    with journal.read() as session:
        for table in TABLES:
            listed = session.connection().execute(text(f"SELECT * FROM {table}")).mappings().all()
            kept = [{k: v for k, v in row.items() if k not in CLOCKS.get(table, ())} for row in listed]
            found[table] = sorted(kept, key=repr)
    return found


def calling(name: str) -> dict[str, Any]:
    call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Traffic:
    """Random records of every kind: conversations, branches, retries, side calls, edits, feedback before and after."""

    def __init__(self, seed: int, pen: Pen) -> None:
        self._chance = random.Random(seed)
        self._pen = pen
        self._turns: list[Interaction] = []
        self._said: list[str] = []

    def write(self, n_records: int) -> None:
        moves: list[Callable[[], object]] = [self._open] * 4 + [self._go_on] * 10 + [self._rate] * 3
        moves += [self._retry, self._ask_again, self._edit, self._ask_aside, self._choices, self._rate_early]
        for _ in range(n_records):
            self._chance.choice(moves if self._turns else [self._open])()

    def _say(self, messages: list[dict[str, Any]], **changes: Any) -> Interaction:
        reply = self._chance.choice(["ok", "hello", "a longer reply " * 4, "the longest reply of them all " * 5])
        given: Any = calling(f"chatcmpl-tool-{self._chance.getrandbits(64):016x}") if self._lucky(5) else reply
        common = {
            "gateway": self._chance.choice("ab"),
            "is_aborted": self._lucky(20),
            "may_train": not self._lucky(20),
            "is_session_done": self._lucky(20),
            "interaction_id": f"c{len(self._turns)}",
            "finish_reason": "tool_calls" if isinstance(given, dict) else "stop",
        }
        turn = self._pen.say(messages, given, **common | changes)
        self._turns.append(turn)
        return turn

    def _who(self) -> dict[str, Any]:
        who: dict[str, Any] = {"key_id": self._chance.choice(["key-1", "key-2"])}
        if self._lucky(3):
            who |= {"quoted_session": self._chance.choice("xyz"), "quoted_by": "x-session-id"}
        return who | ({"user": "ana"} if self._lucky(4) else {})

    def _open(self) -> None:
        text = self._chance.choice(
            ["hi", "hi", "Please rename the module in my repository.", f"odd {len(self._turns)}"]
        )
        has_tools = self._lucky(2)
        messages = [SYSTEM, user(text)] if has_tools else [user(text)]
        self._say(messages, **self._who(), tools=TOOLS if has_tools else ())

    def _go_on(self) -> None:
        turn = self._any()
        calls = turn.reply.get("tool_calls")
        came: list[dict[str, Any]] = [user(self._chance.choice(["more", "thanks", f"and {len(self._turns)}?"]))]
        if calls and not self._lucky(4):
            printed = self._chance.choice(["fine", "exit code: 1", "HTTP 503", "request timed out"])
            came = [{"role": "tool", "tool_call_id": calls[0]["id"], "content": printed}]
        tools = () if self._lucky(8) else turn.tools
        self._say(follow(turn, *came), **self._like(turn), tools=tools)

    def _retry(self) -> None:
        turn = self._any()
        self._say(list(map(dict, turn.messages)), **self._like(turn), tools=turn.tools, retry=turn.retry + 1)

    def _ask_again(self) -> None:
        turn = self._any()
        self._say(list(map(dict, turn.messages)), **self._like(turn), tools=turn.tools)

    def _edit(self) -> None:
        turn = self._any()
        messages = follow(turn, user("go on"))
        messages[-2] = assistant(f"{turn.reply.get('content')} and more")
        self._say(messages, **self._like(turn), tools=turn.tools)

    def _ask_aside(self) -> None:
        opening = self._any().messages[-1].get("content")
        self._say([{"role": "system", "content": "You write titles."}, user(f"A title for: {opening}")], **self._who())

    def _choices(self) -> None:
        turn, name = self._any(), f"r{len(self._turns)}"
        messages = follow(turn, user("which?"))
        for choice in self._chance.sample(range(3), 3):
            self._say(
                messages,
                **self._like(turn) | {"request_id": name, "choice": choice, "n_choices": 3},
                tools=turn.tools,
                interaction_id=f"{name}#{choice}" if choice else name,
            )

    def _rate(self) -> None:
        turn = self._any()
        about = self._chance.choice(list(TargetKind))
        targets = {
            TargetKind.RESPONSE: turn.interaction_id,
            TargetKind.TURN: turn.request_id,
            TargetKind.SESSION: turn.quoted_session or f"s-{turn.request_id}",
        }
        self._rate_target(targets[about], about)

    def _rate_early(self) -> None:
        self._rate_target(f"c{len(self._turns) + self._chance.randrange(3)}", TargetKind.RESPONSE)

    def _rate_target(self, target: str, about: TargetKind) -> None:
        name = f"f{len(self._said)}"
        if self._said and self._lucky(5):
            name = self._chance.choice(self._said)
        self._said.append(name)
        self._pen._now += 1.0
        words = {"comment": "no bold"} if self._lucky(3) else {}
        said: Feedback = feedback(
            target,
            self._chance.choice([1.0, -1.0, None]),
            about=about,
            feedback_id=name,
            created_at=self._pen._now,
            is_deleted=self._lucky(8),
            **words,
        )
        self._pen.write(said, gateway=self._chance.choice("ab"))

    def _like(self, turn: Interaction) -> dict[str, Any]:
        return {name: getattr(turn, name) for name in ("key_id", "quoted_session", "quoted_by", "user")}

    def _any(self) -> Interaction:
        return self._turns[-1] if self._lucky(2) else self._chance.choice(self._turns)

    def _lucky(self, n: int) -> bool:
        return self._chance.randrange(n) == 0


@pytest.fixture
def two(migrated_file: Path, tmp_path: Path) -> list[Journal]:
    """Two empty journals on SQLite."""
    for name in ("one", "all"):
        shutil.copy(migrated_file, tmp_path / f"{name}.db")
    return [Journal.open(f"sqlite:///{tmp_path / name}.db") for name in ("one", "all")]


def file_all(journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(module, "BATCH", batch)
        changed.setattr(module, "HOLD", 1e9)
        while ingest(journal, pen):
            pass


@pytest.mark.parametrize("seed", range(6))
def test_many_records_at_once_give_the_rows_of_one_by_one(
    two: list[Journal], pen: Pen, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    Traffic(seed, pen).write(100)
    one, many = two
    file_all(one, pen, monkeypatch, 1)
    file_all(many, pen, monkeypatch, [7, 50, 1000][seed % 3])
    assert rows(many) == rows(one)


def test_postgresql_files_the_rows_that_sqlite_files(
    any_journal: Journal, two: list[Journal], pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    Traffic(99, pen).write(100)
    file_all(two[0], pen, monkeypatch, 1)
    file_all(any_journal, pen, monkeypatch, 64)
    found, expected = rows(any_journal), rows(two[0])
    assert {table: len(found[table]) for table in TABLES} == {table: len(expected[table]) for table in TABLES}
    linked = ("session_id", "parent_id", "link_rule", "kind", "skip_reason")
    for column in (*linked, "prompt_rest", "logprobs"):
        assert {row["interaction_id"]: row[column] for row in found["interaction"]} == {
            row["interaction_id"]: row[column] for row in expected["interaction"]
        }


STEPS = [
    (WorkingSet, "expect", 1),
    (WorkingSet, "expect", 3),
    (WorkingSet, "_store_sessions", 1),
    (WorkingSet, "_store_jobs", 3),
    (working_set, "insert_many", 1),
    (working_set, "insert_many", 8),
    (working_set, "settle", 1),
    (Filing, "take_interaction", 1),
    (Filing, "take_interaction", 30),
]


@pytest.mark.parametrize(("owner", "name", "fails_at"), STEPS)
def test_a_crash_in_mid_batch_leaves_nothing_of_it(
    two: list[Journal], pen: Pen, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fails_at: int
) -> None:
    """The process dies in any step of a transaction. The next one files every record once, as if nothing had been."""
    Traffic(7, pen).write(60)
    one, many = two
    file_all(one, pen, monkeypatch, 1)
    n_calls, work = 0, getattr(owner, name)

    def dies(*given: Any, **named: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == fails_at:
            raise KeyboardInterrupt
        return work(*given, **named)

    with monkeypatch.context() as broken:
        broken.setattr(owner, name, dies)
        with pytest.raises(KeyboardInterrupt):
            file_all(many, pen, monkeypatch, 20)
    file_all(many, pen, monkeypatch, 20)
    assert rows(many) == rows(one)


def test_an_ingester_that_lost_its_transaction_goes_on_by_itself(
    two: list[Journal], pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ingester, with what it remembers, files again what was rolled back."""
    Traffic(8, pen).write(80)
    one, many = two
    file_all(one, pen, monkeypatch, 1)
    monkeypatch.setattr(module, "BATCH", 30)
    ingester = Ingester(many, pen.folder, session_timeout=FOREVER)
    store, n_stored = WorkingSet.store, 0

    def fails(self: WorkingSet) -> None:
        nonlocal n_stored
        store(self)
        n_stored += 1
        if n_stored in (2, 5, 9):
            raise OperationalError("COMMIT", {}, Exception("the connection is gone"))

    n_failed = 0
    monkeypatch.setattr(WorkingSet, "store", fails)
    while True:
        try:
            if not ingester.run_once():
                break
        except OperationalError:
            n_failed += 1
    assert n_failed == 3
    assert rows(many) == rows(one)


def test_a_record_that_cannot_be_stored_costs_its_neighbours_nothing(
    two: list[Journal], pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is tried again in halves, until the record is alone."""
    turns = [pen.say([user(f"hi {i}")], "hello") for i in range(12)]
    odd = {turns[i].interaction_id for i in (0, 7)}
    row = working_set.row_of

    def refuse(turn: Any, given: Any, rule: str) -> Any:
        if turn.interaction_id in odd:
            raise TypeError("a shape that nobody thought of")
        return row(turn, given, rule)

    monkeypatch.setattr(working_set, "row_of", refuse)
    assert ingest(two[0], pen) == 12
    assert parents(two[0]).keys() == {turn.interaction_id for turn in turns} - odd
    assert len(list((pen.folder / "aside").iterdir())) == 1
    assert ingest(two[0], pen) == 0


def test_a_conversation_goes_on_after_a_restart_from_the_journal_alone(any_journal: Journal, pen: Pen) -> None:
    """Each transaction loads what it needs. Nothing is remembered that a new process would not find."""
    first = pen.say([user("hi")], "hello")
    second = pen.say(follow(first, user("more")), "there")
    others = [pen.say([user(f"other {i}")], "hello") for i in range(300)]
    ingest(any_journal, pen)
    third = pen.say(follow(second, user("and more")), "again")
    last = pen.say(follow(others[0], user("on")), "yes")
    assert ingest(any_journal, pen) == 2
    found = parents(any_journal)
    assert (found[third.interaction_id], found[last.interaction_id]) == (
        second.interaction_id,
        others[0].interaction_id,
    )


def test_the_working_set_is_as_large_as_its_transaction(
    journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many turns the journal has, a transaction holds its own and those that they ask for."""
    sizes: list[int] = []
    store = WorkingSet.store

    def seen(self: WorkingSet) -> None:
        sizes.append(len(self._turns))
        store(self)

    monkeypatch.setattr(WorkingSet, "store", seen)
    monkeypatch.setattr(module, "BATCH", 10)
    monkeypatch.setattr(module, "HOLD", 1e9)
    openings = [pen.say([user(f"hi {i}")], "hello") for i in range(60)]
    for opening in openings:
        pen.say(follow(opening, user("on")), "yes")
    assert ingest(journal, pen) == 120
    assert len(sizes) == 12
    assert max(sizes) <= 20


def test_few_statements_file_many_turns(any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    n_statements = 0

    def count(*_: Any) -> None:
        nonlocal n_statements
        n_statements += 1

    openings = [pen.say([user(f"hi {i}")], "hello") for i in range(100)]
    for opening in openings:
        pen.say(follow(opening, user("on")), "yes")
    monkeypatch.setattr(module, "HOLD", 1e9)
    event.listen(any_journal.engine, "before_cursor_execute", count)
    assert ingest(any_journal, pen) == 200
    assert n_statements < 40
