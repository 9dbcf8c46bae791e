"""The tail of the journal: its place, what holds it up, and what a look reads."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from burnish.config.tracing import Tracing
from burnish.journal import Journal
from burnish.journal.listing import Place
from burnish.journal.tables import JudgementRow
from burnish.segments.lag import lag
from burnish.server.ingest import ingester
from burnish.server.rollout.traces import otlp, reading, sender, tail
from burnish.server.rollout.traces.otlp import Otlp
from burnish.server.rollout.traces.reading import Look
from burnish.server.rollout.traces.spans import Origin, Span
from burnish.server.rollout.traces.tail import TraceTail
from burnish.server.rollout.traces.told import Told
from tests.factories import interaction, user
from tests.server.rollout.traces.trace_world import SENT, TraceWorld, ids, names
from tests.statements import noted, plans
from tests.turns import add_feedback, add_turn


class Failing(SpanExporter):
    """Takes nothing while it is `down`."""

    def __init__(self) -> None:
        self.is_down = True
        self.n_asked = 0
        self.taken: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.n_asked += 1
        if self.is_down:
            return SpanExportResult.FAILURE
        self.taken += names(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


@pytest.fixture
def failing(world: TraceWorld, monkeypatch: pytest.MonkeyPatch) -> Failing:
    exporter = Failing()
    world.tail = TraceTail(world.journal, world.settings, Otlp(exporter))
    monkeypatch.setattr(tail, "FIRST_PAUSE", 0.0)
    world.tail._pause = 0.0
    return exporter


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic() + seconds
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))


async def test_the_place_stays_until_the_receiver_has_taken_everything(world: TraceWorld, failing: Failing) -> None:
    await world.tail.run_once()
    world.say("t")
    for _ in range(3):
        assert not await world.tail.run_once()
    failing.is_down = False
    await world.tail.run_once()
    await world.tail.run_once()
    assert (failing.taken, failing.n_asked) == (["chat agent"], 4)


async def test_pauses_grow_while_the_receiver_is_away(
    world: TraceWorld, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "FIRST_PAUSE", 5.0)
    await world.tail.run_once()
    world.say("t")
    for seconds, n_asked in ((0, 1), (4, 1), (6, 2), (15, 2), (17, 3)):
        with monkeypatch.context() as changed:
            later(changed, seconds)
            await world.tail.run_once()
        assert failing.n_asked == n_asked, seconds


async def test_what_the_receiver_never_takes_is_left_out(
    world: TraceWorld, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.tail.run_once()
    world.say("poison")
    await world.tail.run_once()
    later(monkeypatch, tail.PATIENCE + 1.0)
    with capture_logs() as said:
        await world.tail.run_once()
    assert [line["event"] for line in said if line["log_level"] == "error"] == [
        "spans are left out: the receiver of traces did not take them"
    ]
    failing.is_down = False
    world.say("sound")
    later(monkeypatch, tail.PATIENCE + tail.LONGEST_PAUSE + 2.0)
    await world.tail.run_once()
    assert failing.taken == ["chat agent"]


async def test_a_restart_goes_on_where_the_last_one_ended(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    world.judge("t", 1)
    step = world.begin_step("t")
    assert len(await world.look()) == 2
    before = world.tail._told
    world.restarted()
    assert world.tail._told == before is not None and before.open_steps == (step.step_id,)
    assert await world.look() == ()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"since": 1, "turns": [1], "verdicts": 2}'])
async def test_a_file_that_cannot_be_read_begins_anew(world: TraceWorld, text: str) -> None:
    await world.look()
    world.say("t")
    (world.settings.run_dir / "traces.json").write_text(text)
    world.restarted()
    assert await world.look() == ()
    world.say("u")
    assert len(await world.look()) == 1


async def test_many_turns_are_told_once_each_in_parts(world: TraceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST", 3)
    await world.look()
    at = time.time()
    turns = [interaction([user("x")], interaction_id=f"t{number}", ended_at=at) for number in range(10)]
    world.write(*turns)
    world.ingest()
    for turn in turns:
        world.judge(turn.interaction_id, 1, hint="be brief" if turn.interaction_id > "t5" else None)
        world.rate(turn.interaction_id, 1.0)
    spans = await world.look()
    assert sorted(names(spans)) == ["chat agent"] * 10 + ["evaluate rating"] * 10 + ["evaluate verdict"] * 10
    assert len({ids(span) for span in spans}) == 30
    assert await world.look() == ()


async def test_a_long_backlog_is_told_slice_by_slice(world: TraceWorld) -> None:
    await world.look()
    now = time.time()
    with world.journal.read() as session:
        world.tail._told = Told.until(session, now - 7 * reading.SLICE)
    for number in range(7):
        add_turn(world.journal, interaction([user("x")], ended_at=now - number * reading.SLICE - 1.0))
    n_looks = 1
    while await world.tail.run_once():
        n_looks += 1
    assert (len(world.exporter.get_finished_spans()), n_looks) == (7, 8)


async def test_what_is_older_than_a_day_is_not_told(world: TraceWorld) -> None:
    now = time.time()
    with world.journal.read() as session:
        world.tail._told = Told.until(session, now - 3 * tail.OLDEST)
    for age in (2.0, 0.5):
        add_turn(world.journal, interaction([user("x")], ended_at=now - age * tail.OLDEST))
    assert len(await world.look()) == 1


async def test_a_turn_is_told_only_when_nothing_before_it_can_come(
    world: TraceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that waits in a segment holds the tail back, however long the ingester takes."""
    await world.look()
    waiting = interaction([user("x")], interaction_id="late", ended_at=time.time())
    (world.settings.segments_dir / "b.seg").write_bytes(b"")
    monkeypatch.setattr(ingester, "SETTLE_SECONDS", -1.0)
    world.write(waiting)
    add_turn(world.journal, interaction([user("y")], interaction_id="early", ended_at=time.time()))
    assert await world.look() == ()
    world.ingest()
    assert len(await world.look()) == 2


async def test_the_newest_seconds_wait(world: TraceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.look()
    world.say("t")
    monkeypatch.setattr(tail, "MARGIN", 10.0)
    assert await world.look() == ()
    monkeypatch.setattr(tail, "MARGIN", 0.0)
    assert len(await world.look()) == 1


async def test_a_mistake_ends_nothing(world: TraceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(world.tail, "_look", broken)
    monkeypatch.setattr(tail, "INTERVAL", 0.0)
    n_looks = 0

    def is_stopping() -> bool:
        nonlocal n_looks
        n_looks += 1
        return n_looks > 1

    with capture_logs() as said:
        await world.tail.run_forever(is_stopping)
    assert [line["event"] for line in said] == ["traces cannot be made; it is tried again"]


async def test_without_the_variables_nothing_is_read_and_no_sdk_is_loaded(
    world: TraceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    off = TraceTail.of(world.journal, world.settings)
    monkeypatch.setattr(off, "_look", None)
    await off.run_forever(lambda: False)  # returns at once
    assert not await off.run_once()
    off.close()


def test_a_missing_extra_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "burnish.server.rollout.traces.otlp", None)
    with capture_logs() as said:
        assert sender.sender_of(Tracing()) is None
    assert said == [{"event": sender.REMEDY, "log_level": "error"}]
    assert "`otel` extra" in sender.REMEDY


def test_a_wrong_variable_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    with capture_logs() as said:
        assert sender.sender_of(Tracing()) is None
    assert [line["event"] for line in said] == ["traces cannot be sent: a variable OTEL_… is wrong"]


def test_another_protocol_than_asked_for_is_said() -> None:
    with capture_logs() as said:
        made = sender.sender_of(Tracing(protocol="grpc"))
    assert made is not None
    made.close()
    assert [(line["asked"], line["used"]) for line in said] == [("grpc", "http/protobuf")]


def test_requests_to_the_receiver_are_bounded() -> None:
    def span(text: str) -> Span:
        return Span(Origin("t", "t", "agent"), "turn", None, "chat agent", 1.0, 2.0, {"text": text})

    small = [span("x")] * (otlp.AT_ONCE + 1)
    assert [len(some) for some in otlp._batches(small)] == [otlp.AT_ONCE, 1]
    large = [span("x" * (otlp.AT_ONCE_CHARACTERS // 2))] * 3 + [span("x" * (3 * otlp.AT_ONCE_CHARACTERS))]
    assert [len(some) for some in otlp._batches(large)] == [2, 1, 1]
    assert list(otlp._batches([])) == []


@pytest.fixture
def told() -> Told:
    return Told(0.0, Place(1.0, "a"), Place(2.0, "b"), Place(3.0, ""), 4, 5, (1, 2))


def test_the_place_survives_its_file(told: Told) -> None:
    assert Told.read(json.loads(json.dumps(told.written()))) == told
    assert told.but_not_before(2.5).verdicts == Place(2.5, "") and told.but_not_before(2.5).feedback == told.feedback


def test_a_look_reads_both_databases_alike_and_no_whole_table(any_journal: Journal, told: Told) -> None:
    """On SQLite it searches by an index wherever it reads a large table."""
    add_turn(any_journal, interaction([user("x")], interaction_id="t", ended_at=10.0, traceparent=SENT))
    add_feedback(any_journal, "t", 1.0, created_at=11.0)
    add_feedback(any_journal, "t", 1.0, created_at=11.0, tenant="another")
    with any_journal.write() as session:
        for number, status in enumerate((None, "accepted", "length", "accepted")):
            row: dict[str, Any] = {"confidence": 1.0, "votes": [], "n_failed": 0, "hint_status": status}
            name = {"judgement_id": f"j{number}", "interaction_id": "t", "origin": f"o{number}"}
            session.add(JudgementRow(judge_id="j", created_at=12.0, **name, **row))
    with noted(any_journal.engine) as said, any_journal.read() as session:
        found = Look(session, told, 100.0, lambda _: True, has_content=True).take()
    assert sorted(span.name for span in found.spans) == [
        "chat agent", *["evaluate rating"] * 2, *["evaluate verdict"] * 4,
    ]  # fmt: skip
    assert (found.told.turns, found.told.step_id, found.is_more) == (Place(100.0, ""), 4, False)
    if any_journal.engine.dialect.name != "sqlite":
        return
    large = ("interaction", "feedback", "judgement", "sample", "group_sample", "blob")
    for statement, steps in plans(any_journal.engine, said):
        assert [step for step in steps if step in {f"SCAN {table}" for table in large}] == [], statement
        assert not any("USING INTEGER PRIMARY KEY" in step and "SCAN" in step for step in steps), statement


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The SDK logs what goes wrong, too."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


def test_a_folder_without_segments_holds_nothing_back(tmp_path: Path) -> None:
    journal = Journal.open(f"sqlite:///{tmp_path / 'journal.db'}")
    with journal.read() as session:
        assert lag(session, tmp_path / "none", 5.0) == 0.0
    journal.close()
