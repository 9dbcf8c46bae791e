"""From segments into SQL: each record once and in order, despite crashes, damage and absent databases."""

import os
import time
from array import array
from collections import Counter
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy.exc import OperationalError

from burnish.adapters.verbs import privacy
from burnish.errors import JournalError
from burnish.journal import Journal
from burnish.journal.blobs import DAY, PART, n_ids, text_of
from burnish.journal.evidence import reward_of
from burnish.journal.privacy import erasure
from burnish.journal.tables import InteractionRow, PromptPartRow, SegmentRow
from burnish.journal.turns import interaction_of
from burnish.records import FeedbackSource
from burnish.segments.frames import encode
from burnish.server.ingest import ingester as module
from burnish.server.ingest.filing import Filing
from burnish.server.ingest.ingester import Ingester
from tests.factories import feedback, interaction, user
from tests.postgres import Postgres, running
from tests.server.ingest.pen import FOREVER, Pen, asked, feedback_targets, follow, ingest, links, next_state, parents


def segments(journal: Journal) -> dict[str, tuple[int, str | None]]:
    with journal.read() as session:
        return {row.name: (row.offset, row.error) for row in session.query(SegmentRow).all()}


def is_ready(journal: Journal, name: str) -> bool:
    with journal.read() as session:
        return session.get_one(InteractionRow, name).is_ready


def conversation(pen: Pen, n: int, name: str, *, gateways: str = "a") -> list[str]:
    """`n` turns of one conversation, spread over `gateways`. Returns their ids."""
    turn = pen.say([user(f"{name}?")], f"{name} 0", interaction_id=f"{name}-0", gateway=gateways[0])
    for i in range(1, n):
        messages = follow(turn, user(f"{name} more {i}"))
        turn = pen.say(messages, f"{name} {i}", interaction_id=f"{name}-{i}", gateway=gateways[i % len(gateways)])
    return [f"{name}-{i}" for i in range(n)]


def chain(names: list[str]) -> dict[str, str | None]:
    return dict(zip(names, [None, *names], strict=False))


def test_a_record_is_stored_as_it_was_written(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi \ud83d\x00")], "hello", user="ana", tools=({"type": "function"},), traceparent="00-1")
    ingest(any_journal, pen)
    with any_journal.read() as session:
        row = session.get_one(InteractionRow, turn.interaction_id)
        found = interaction_of(session, row)
    assert row.traceparent == "00-1"
    assert (found.reply, list(found.messages), found.user) == (turn.reply, list(turn.messages), "ana")
    assert (found.prompt_ids, found.token_ids, found.logprobs) == (turn.prompt_ids, turn.token_ids, turn.logprobs)
    assert segments(any_journal) == {"a.seg": ((pen.folder / "a.seg").stat().st_size, None)}


def test_the_prompts_of_a_conversation_are_stored_once(any_journal: Journal, pen: Pen) -> None:
    """The beginning of each prompt is that of the one before it, and of another conversation with the same opening."""
    ids = array("i", range(5 * PART))
    lengths = (PART - 1, PART, 2 * PART + 5, 5 * PART)
    turn = pen.say([user("hi")], "a", interaction_id="0", prompt_ids=ids[: lengths[0]])
    for number, n in enumerate(lengths[1:], 1):
        turn = pen.say(follow(turn, user("on")), "a", interaction_id=str(number), prompt_ids=ids[:n])
    pen.say([user("hello")], "b", interaction_id="other", prompt_ids=ids[: 3 * PART + 1])
    ingest(any_journal, pen)
    names = {**{str(number): n for number, n in enumerate(lengths)}, "other": 3 * PART + 1}
    with any_journal.read() as session:
        for name, n in names.items():
            assert interaction_of(session, session.get_one(InteractionRow, name)).prompt_ids == ids[:n]
        assert dict(session.connection().execute(select(InteractionRow.interaction_id, n_ids())).all()) == names
        assert session.connection().execute(select(func.count()).select_from(PromptPartRow)).scalar_one() == 5


def test_a_prompt_is_stored_whole_after_one_of_an_earlier_schema_or_an_erased_one(
    any_journal: Journal, pen: Pen
) -> None:
    ids = array("i", range(2 * PART + 1))
    first = pen.say([user("hi")], "a", interaction_id="0", prompt_ids=ids[:PART])
    ingest(any_journal, pen)
    with any_journal.write() as session:  # as a turn is after the migration
        row = session.get_one(InteractionRow, "0")
        row.prompt_parts, row.prompt_rest = [], ids[:PART].tobytes()
        erasure.drop_unused(session)
    second = pen.say(follow(first, user("on")), "b", interaction_id="1", prompt_ids=ids)
    ingest(any_journal, pen)
    with any_journal.write() as session:
        assert [interaction_of(session, session.get_one(InteractionRow, n)).prompt_ids for n in "01"] == [
            ids[:PART],
            ids,
        ]
        erasure.erase_turns(session, ["1"])
        erasure.drop_unused(session)
    pen.say(follow(second, user("and on")), "c", interaction_id="2", prompt_ids=ids)
    ingest(any_journal, pen)
    with any_journal.read() as session:
        assert interaction_of(session, session.get_one(InteractionRow, "2")).prompt_ids == ids


def test_a_text_keeps_the_key_of_the_time_at_which_its_conversation_said_it(any_journal: Journal, pen: Pen) -> None:
    """A system prompt has one key on all days, because many conversations have it. A long text has one on each day."""
    ids = array("i", range(2 * PART))
    system = {"role": "system", "content": "Be brief."}
    times = [{"started_at": n * DAY, "ended_at": n * DAY + 1.0} for n in (0x4000, 0x4001, 0x4001 + 0.5)]
    long = "A long story. " * 200
    first = pen.say([system, user("hi")], long, interaction_id="0", prompt_ids=ids[:PART], **times[0])
    pen.say(follow(first, user("on")), "b", interaction_id="1", prompt_ids=ids, **times[1])
    pen.say([system, user("hi")], long, interaction_id="2", prompt_ids=ids[:PART], key_id="key-2", **times[1])
    pen.say([system, user("hi")], long, interaction_id="3", prompt_ids=ids[:PART], key_id="key-3", **times[2])
    ingest(any_journal, pen)
    with any_journal.read() as session:
        rows = [session.get_one(InteractionRow, name) for name in "0123"]
        one, two, other, last = ([*row.message_digests, row.reply_digest] for row in rows)
        parts = [row.prompt_parts for row in rows]
    assert two[:3] == one and last[0] == other[0] == one[0] == text_of(system)[0]
    assert [key[:4] for key in (*one[1:], *two[3:], *other[1:])] == ["4000"] * 2 + ["4001"] * 4
    assert [key[4:10] for key in (one[1], other[1], last[1])] == ["000000", "000000", "800000"]
    assert all(key[10:] == text_of(user("hi"))[0][10:] for key in (one[1], other[1], last[1]))
    assert one[2] != other[2] == last[2] and one[2][4:] == other[2][4:]
    assert (
        parts[1][:1] == parts[0]
        and [key[:4] for each in parts for key in each] == ["4000", "4000", "4001"] + ["4001"] * 2
    )


def test_a_prompt_without_a_part_names_the_remedy(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi")], "a", prompt_ids=array("i", range(PART)))
    ingest(any_journal, pen)
    with any_journal.write() as session:
        session.execute(delete(PromptPartRow))
    with any_journal.read() as session, pytest.raises(JournalError, match=r"1 parts .* `burnish journal check`"):
        interaction_of(session, session.get_one(InteractionRow, turn.interaction_id))


def test_gateways_segments_are_read_as_one_stream_in_order_of_time(any_journal: Journal, pen: Pen) -> None:
    names = conversation(pen, 6, "x", gateways="cab") + conversation(pen, 4, "y", gateways="bc")
    assert ingest(any_journal, pen) == 10
    assert parents(any_journal) == chain(names[:6]) | chain(names[6:])


def test_nothing_younger_than_the_watermark_is_taken_yet(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply on its way into another gateway's segment must be read before the request that continues it."""
    first = interaction([user("hi")], "hello", interaction_id="first", ended_at=999.99)
    second = interaction(follow(first, user("on")), "yes", interaction_id="second", ended_at=999.999)
    clock = SimpleNamespace(perf_counter=time.perf_counter, time=lambda: 1000.0, sleep=time.sleep)
    monkeypatch.setattr(module, "time", clock)
    pen.write(second, gateway="quick")
    assert ingest(any_journal, pen) == 0
    pen.write(first, gateway="slow")
    assert ingest(any_journal, pen) == 0
    clock.time = lambda: 1001.0
    assert ingest(any_journal, pen) == 2
    assert parents(any_journal) == {"first": None, "second": "first"}


def test_a_record_behind_a_young_one_waits_for_it(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a segment nothing is skipped: the cursor stays before the young record."""
    monkeypatch.setattr(
        module, "time", SimpleNamespace(perf_counter=time.perf_counter, time=lambda: 1000.0, sleep=time.sleep)
    )
    pen.write(interaction([user("young")], ended_at=1000.5, interaction_id="young"))
    pen.write(interaction([user("old")], ended_at=500.0, interaction_id="old"))
    assert ingest(any_journal, pen) == 0
    monkeypatch.undo()
    assert ingest(any_journal, pen) == 2


@pytest.mark.parametrize("fails_at", [1, 2, 3, 5, 6])
def test_a_crash_between_records_loses_and_doubles_nothing(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    names = conversation(pen, 5, "x", gateways="ab")
    pen.write(feedback("x-0", 1.0), gateway="b")
    monkeypatch.setattr(module, "BATCH", 2)
    take, n_taken = Ingester._take, Counter[str]()

    def crash(self: Ingester, session: Any, record: Any) -> None:
        n_taken["n"] += 1
        if n_taken["n"] == fails_at:
            raise KeyboardInterrupt
        take(self, session, record)

    with monkeypatch.context() as broken:
        broken.setattr(Ingester, "_take", crash)
        with pytest.raises(KeyboardInterrupt):
            ingest(any_journal, pen)
    ingest(any_journal, pen)
    assert parents(any_journal) == chain(names)
    assert len(feedback_targets(any_journal)) == 1
    assert is_ready(any_journal, "x-0")  # a rated turn waits for no judge
    assert asked(any_journal) == {f"{name}|next_state" for name in names[1:-1]}


def test_reading_everything_again_changes_nothing(any_journal: Journal, pen: Pen) -> None:
    names = conversation(pen, 3, "x")
    pen.write(feedback("x-2", 1.0, feedback_id="f"), feedback("x-1", None, comment="no bold", feedback_id="g"))
    ingest(any_journal, pen)
    before = links(any_journal), asked(any_journal), feedback_targets(any_journal)
    with any_journal.write() as session:
        for row in session.query(SegmentRow).all():
            row.offset = 0
    ingest(any_journal, pen)
    assert (links(any_journal), asked(any_journal), feedback_targets(any_journal)) == before
    assert parents(any_journal) == chain(names)


def test_a_torn_frame_is_read_when_it_is_whole(any_journal: Journal, pen: Pen) -> None:
    conversation(pen, 2, "x")
    frame = encode(interaction([user("z")], interaction_id="z", ended_at=2000.0))
    with (pen.folder / "a.seg").open("ab") as file:
        file.write(frame[:50])
        file.flush()
        assert ingest(any_journal, pen) == 2
        assert ingest(any_journal, pen) == 0
        file.write(frame[50:])
    assert ingest(any_journal, pen) == 1
    assert segments(any_journal)["a.seg"][1] is None


def damage(pen: Pen, gateway: str) -> None:
    """A frame with a flipped byte, and a sound one after it."""
    bad = bytearray(encode(interaction([user("bad")], interaction_id="bad", ended_at=1500.0)))
    bad[40] ^= 0xFF
    behind = encode(interaction([user("behind")], interaction_id="behind", ended_at=1501.0))
    with (pen.folder / f"{gateway}.seg").open("ab") as file:
        file.write(bytes(bad) + behind)


def test_a_damaged_segment_is_marked_and_the_others_go_on(any_journal: Journal, pen: Pen) -> None:
    names = conversation(pen, 4, "x", gateways="ab")
    size = (pen.folder / "a.seg").stat().st_size
    damage(pen, "a")
    ingest(any_journal, pen)
    assert parents(any_journal) == chain(names)  # records before the damage are ingested
    offset, error = segments(any_journal)["a.seg"]
    assert offset == size
    assert error is not None and "checksum" in error
    pen.write(interaction([user("later")], interaction_id="later", ended_at=1600.0), gateway="b")
    assert ingest(any_journal, pen) == 1
    assert segments(any_journal)["a.seg"] == (offset, error)
    assert set(links(any_journal)) == {*names, "later"}


def test_a_crash_beside_a_damaged_segment_loses_nothing_before_the_damage(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = conversation(pen, 3, "x")
    damage(pen, "a")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Ingester, "_take", crash)
        with pytest.raises(KeyboardInterrupt):
            ingest(any_journal, pen)
    ingest(any_journal, pen)
    assert parents(any_journal) == chain(names)
    assert segments(any_journal)["a.seg"][1] is not None


def test_a_record_that_cannot_be_stored_is_left_aside_and_the_others_go_on(
    any_journal: Journal, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = conversation(pen, 3, "x")
    pen.write(interaction([user("odd")], interaction_id="odd", ended_at=1002.5), gateway="b")
    take = Filing.take_interaction

    def refuse(self: Filing, session: Any, turn: Any) -> None:
        take(self, session, turn)
        if turn.turn.interaction_id == "odd":
            raise TypeError("a shape that nobody thought of")

    monkeypatch.setattr(Filing, "take_interaction", refuse)
    assert ingest(any_journal, pen) == 4
    assert parents(any_journal) == chain(names)  # nothing of the bad file, all of the others
    assert ingest(any_journal, pen) == 0


def test_text_that_a_database_cannot_hold_is_made_to_fit(any_journal: Journal, pen: Pen) -> None:
    """PostgreSQL refuses a NUL, both refuse half a surrogate pair. Neither may stop the ingester."""
    odd = "a\x00b\ud83d"
    turn = pen.say([user("hi")], "hello", user=odd, quoted_session=odd, turn_type="main")
    pen.write(feedback(turn.interaction_id, 1.0, comment=odd, correction=odd, feedback_id="f"))
    pen.write(feedback(odd, 1.0, feedback_id=odd))
    after = pen.say(follow(turn, user("on")), "yes", user=odd, quoted_session=odd)
    assert ingest(any_journal, pen) == 4
    assert links(any_journal)[after.interaction_id].parent == turn.interaction_id
    assert feedback_targets(any_journal)["f"] == turn.interaction_id


def test_feedback_that_came_before_its_turn_is_attached_when_the_turn_comes(any_journal: Journal, pen: Pen) -> None:
    pen.write(feedback("t", 1.0, feedback_id="early"), feedback("t", None, comment="no bold", feedback_id="words"))
    ingest(any_journal, pen)
    assert feedback_targets(any_journal) == {"early": None, "words": None}
    pen.write(interaction([user("hi")], interaction_id="t", ended_at=3000.0), gateway="b")
    ingest(any_journal, pen)
    assert feedback_targets(any_journal) == {"early": "t", "words": "t"}
    assert asked(any_journal) == {"t|feedback"}


def test_feedback_makes_a_turn_ready_at_once(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi")], "hello")
    ingest(any_journal, pen)
    assert not is_ready(any_journal, turn.interaction_id)
    pen.write(feedback(turn.interaction_id, -1.0))
    ingest(any_journal, pen)
    assert is_ready(any_journal, turn.interaction_id)
    assert asked(any_journal) == set()


def test_a_rated_turn_waits_for_the_judge_of_what_came_back(any_journal: Journal, pen: Pen) -> None:
    """The user's rating stays, and the reply to it may still hold the hint."""
    turn = pen.say([user("hi")], "hello")
    pen.write(feedback(turn.interaction_id, -1.0, created_at=1002.0))
    ingest(any_journal, pen)
    assert is_ready(any_journal, turn.interaction_id)
    pen.say(follow(turn, user("no bold please")), "sorry", started_at=3000.0, ended_at=3001.0)
    ingest(any_journal, pen)
    assert not is_ready(any_journal, turn.interaction_id)


@pytest.mark.parametrize("comes_first", ["feedback", "turn"])
def test_feedback_of_another_tenant_is_never_attached(any_journal: Journal, pen: Pen, comes_first: str) -> None:
    alien = feedback("t", 1.0, tenant="other", feedback_id="alien", comment="obey")
    turn = interaction([user("hi")], interaction_id="t", tenant="default", ended_at=3000.0)
    for record in (alien, turn) if comes_first == "feedback" else (turn, alien):
        pen.write(record, gateway=type(record).__name__)
        ingest(any_journal, pen)
    assert feedback_targets(any_journal) == {"alien": None}
    assert asked(any_journal) == set()
    with any_journal.read() as session:
        assert reward_of(session, "t") is None


def test_the_harness_cannot_make_the_judge_write_hints(any_journal: Journal, pen: Pen) -> None:
    """Its comment, read by the judge, would otherwise become a hint when a user rates the same reply."""
    turn = pen.say([user("hi")], "hello")
    pen.write(feedback(turn.interaction_id, 1.0, comment="obey me", source=FeedbackSource.HARNESS, created_at=2000.0))
    pen.write(feedback(turn.interaction_id, -1.0, created_at=2001.0))
    ingest(any_journal, pen)
    assert asked(any_journal) == set()
    pen.write(feedback(turn.interaction_id, None, comment="too long", created_at=2002.0))
    ingest(any_journal, pen)
    assert asked(any_journal) == {f"{turn.interaction_id}|feedback"}


@pytest.mark.parametrize(
    ("changes", "skip_reason"),
    [
        ({"may_train": False}, "opted out"),
        ({"turn_type": "side"}, "side turn"),
        ({"turn_type": "main"}, None),
        ({"is_aborted": True}, "aborted"),
        ({"quarantine": "2 ids, 1 log-prob"}, "quarantined: 2 ids, 1 log-prob"),
        ({"is_aborted": True, "quarantine": "no ids"}, "quarantined: no ids"),
    ],
)
def test_why_a_turn_is_never_trained_is_known_from_the_start(
    any_journal: Journal, pen: Pen, changes: dict[str, Any], skip_reason: str | None
) -> None:
    turn = pen.say([user("hi")], "hello", **changes)
    after = pen.say(follow(turn, user("on")), "yes")
    pen.write(feedback(turn.interaction_id, None, comment="no bold"))
    ingest(any_journal, pen)
    found = links(any_journal)
    assert found[turn.interaction_id].skip_reason == skip_reason
    assert found[after.interaction_id].parent == turn.interaction_id  # it is still a turn
    assert next_state(any_journal, turn) is not None
    expected = (
        {f"{turn.interaction_id}|{origin}" for origin in ("next_state", "feedback")} if skip_reason is None else set()
    )
    assert asked(any_journal) == expected


def test_a_database_that_is_away_is_waited_for(
    request: pytest.FixtureRequest, pen: Pen, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    """Connections are cut and refused, as in a restart. All records are there afterwards, once."""
    server = running(request.config)
    name = server.fresh()
    journal = Journal.open(server.url(name))
    names = conversation(pen, 2, "x")
    ingest(journal, pen)
    names += conversation(pen, 2, "y")
    server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    with pytest.raises(OperationalError):
        ingest(journal, pen)

    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=time.perf_counter, time=time.time, sleep=nap))
    ingester = Ingester(journal, pen.folder, session_timeout=FOREVER)
    ingester.run_forever(lambda: len(naps) > 4, 0.01)
    assert 0.0 < naps[0] < naps[1]
    assert parents(journal) == chain(names[:2]) | chain(names[2:])
    journal.close()


def test_a_connection_cut_in_mid_batch_loses_and_skips_nothing(
    request: pytest.FixtureRequest, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = running(request.config)
    name = server.fresh()
    journal = Journal.open(server.url(name))
    names = conversation(pen, 3, "x")
    take, cuts = Filing.take_interaction, ["x-1"]

    def cut(self: Filing, session: Any, turn: Any) -> None:
        if cuts and turn.turn.interaction_id == cuts[0]:
            cuts.pop()
            server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        take(self, session, turn)

    monkeypatch.setattr(Filing, "take_interaction", cut)
    with closing(journal):
        with pytest.raises(OperationalError):
            ingest(journal, pen)
        # an earlier transaction's records stay; on a slow machine that is the first turn
        filed = len(parents(journal))
        assert ingest(journal, pen) == 3 - filed
        assert parents(journal) == chain(names)


def test_an_unreadable_folder_entry_is_no_segment(journal: Journal, pen: Pen) -> None:
    conversation(pen, 1, "x")
    (pen.folder / f".reserve-{os.getpid()}").write_bytes(b"\0" * 100)
    (pen.folder / "empty.seg").touch()
    assert ingest(journal, pen) == 1
    assert ingest(journal, pen) == 0


def test_what_was_recorded_before_an_opt_out_and_is_read_after_it_does_not_train(journal: Journal, pen: Pen) -> None:
    hers = [pen.say([user("hi")], "ok", user="ann"), pen.say([user("ho")], "ok", quoted_user="ann")]
    others = [pen.say([user("hi")], "ok", user="bob", quoted_user="ann"), pen.say([user("hi")], "ok", tenant="other")]
    with journal.write() as session:
        privacy.opt_out(session, ("default", "user", "ann"), may_record=True, actor="test")
    ingest(journal, pen)
    with journal.read() as session:
        rows = {each.interaction_id: session.get_one(InteractionRow, each.interaction_id) for each in (*hers, *others)}
    assert [rows[each.interaction_id].may_train for each in (*hers, *others)] == [False, False, True, True]
    assert [rows[each.interaction_id].skip_reason for each in (*hers, *others)] == ["opted out"] * 2 + [None] * 2
