"""Turns become conversations: by repeated messages, by headers, and `ambiguous` if nothing tells them apart."""

from pathlib import Path
from typing import Any

import pytest

from burnish.journal import Journal
from burnish.journal.tables import SessionRow
from burnish.journal.tables.turns import WEEK_SECONDS
from burnish.server.ingest.ingester import Ingester
from tests.factories import user
from tests.server.ingest.pen import Linked, Pen, asked, follow, ingest, links, next_state, parents


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_a_conversation_is_linked_turn_by_turn(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    second = pen.say(follow(first, user("more")), "there")
    third = pen.say(follow(second, user("and more")), "again")
    assert ingest(any_journal, pen) == 3
    found = links(any_journal)
    assert [found[turn.interaction_id].rule for turn in (first, second, third)] == ["new", "prefix", "prefix"]
    assert [found[turn.interaction_id].parent for turn in (first, second, third)] == [
        None,
        first.interaction_id,
        second.interaction_id,
    ]
    assert len({link.session for link in found.values()}) == 1
    assert next_state(any_journal, first) == ("user_reply", [user("more")], second.interaction_id)
    assert next_state(any_journal, third) is None
    assert asked(any_journal) == {f"{turn.interaction_id}|next_state" for turn in (first, second)}


def test_turn_by_turn_or_all_at_once_is_the_same(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi")], "reply 0")
    ingest(any_journal, pen)
    expected: dict[str, str | None] = {turn.interaction_id: None}
    for i in range(4):
        following = pen.say(follow(turn, user(f"more {i}")), f"reply {i + 1}")
        assert ingest(any_journal, pen) == 1
        expected[following.interaction_id] = turn.interaction_id
        turn = following
    assert parents(any_journal) == expected
    assert ingest(any_journal, pen) == 0


BASE = 2800.4 * WEEK_SECONDS


def resumed(journal: Journal, pen: Pen, messages: list[dict[str, Any]], weeks: float) -> Linked:
    """The turn with which a conversation of the time `BASE` goes on after `weeks`. Everything before it is filed."""
    ingest(journal, pen)
    at = BASE + weeks * WEEK_SECONDS
    later = pen.say(messages, "there", started_at=at, ended_at=at + 1.0)
    ingest(journal, pen)
    return links(journal)[later.interaction_id]


@pytest.mark.parametrize("weeks", [-0.6, 0.01, 1.0, 2.0, 2.6, 3.0, 5.9, 6.4, 60.0])
@pytest.mark.parametrize("is_changed", [False, True])
def test_an_opt_out_holds_however_long_a_conversation_rests(
    any_journal: Journal, pen: Pen, weeks: float, is_changed: bool
) -> None:
    """A clock that was set back does no harm."""
    hello, system = pen.say([user("hi")], "hello"), {"role": "system", "content": "Today is Monday."}
    first = pen.say(follow(hello, user("so")), "yes", started_at=BASE, ended_at=BASE + 1.0, may_train=False)
    messages = follow(first, user("more"))
    found = resumed(any_journal, pen, [system, *messages] if is_changed else messages, weeks)
    assert (found.parent, found.skip_reason) == (first.interaction_id, "opted out with an earlier turn")
    assert found.rule == ("suffix" if is_changed else "prefix")


@pytest.mark.parametrize("weeks", [0.01, 60.0])
def test_an_opt_out_holds_if_a_later_reply_comes_back_changed_or_was_not_recorded(
    any_journal: Journal, pen: Pen, weeks: float
) -> None:
    hello = pen.say([user("hi")], "hello", started_at=BASE, ended_at=BASE + 1.0, may_train=False)
    second = pen.say(follow(hello, user("so")), "yes", started_at=BASE + 2.0, ended_at=BASE + 3.0)
    ingest(any_journal, pen)
    at = BASE + weeks * WEEK_SECONDS
    quite_another = {**second.reply, "content": "Something else entirely."}
    unrecorded = [user("and"), {"role": "assistant", "content": "Not in the journal."}]
    later = [
        pen.say([*second.messages, quite_another, user("more")], "there", started_at=at, ended_at=at + 1.0),
        pen.say([*follow(second, *unrecorded), user("go on")], "yet", started_at=at + 2.0, ended_at=at + 3.0),
    ]
    ingest(any_journal, pen)
    found = links(any_journal)
    assert [found[each.interaction_id].skip_reason for each in later] == ["opted out with an earlier turn"] * 2


def test_an_opt_out_holds_if_the_beginning_was_repeated_since_then(any_journal: Journal, pen: Pen) -> None:
    hello = pen.say([user("hi")], "hello", started_at=BASE, ended_at=BASE + 1.0)
    out = pen.say(follow(hello, user("so")), "yes", started_at=BASE + 2.0, ended_at=BASE + 3.0, may_train=False)
    at = BASE + 60.0 * WEEK_SECONDS
    pen.say([user("hi")], "hello", started_at=at - 10.0, ended_at=at - 9.0)
    found = resumed(any_journal, pen, follow(out, user("more")), 60.0)
    assert (found.parent, found.skip_reason) == (out.interaction_id, "opted out with an earlier turn")


@pytest.mark.parametrize("weeks", [0.01, 60.0])
def test_an_opt_out_holds_beyond_a_turn_that_another_server_answered(
    any_journal: Journal, pen: Pen, weeks: float
) -> None:
    out = pen.say([user("hi")], "hello", started_at=BASE, ended_at=BASE + 1.0, may_train=False)
    second = pen.say(follow(out, user("so")), "yes", started_at=BASE + 2.0, ended_at=BASE + 3.0, upstream="claude")
    third = pen.say(follow(second, user("and")), "no", started_at=BASE + 4.0, ended_at=BASE + 5.0)
    later = resumed(any_journal, pen, follow(third, user("more")), weeks)
    found = links(any_journal)
    after = [*(found[turn.interaction_id].skip_reason for turn in (second, third)), later.skip_reason]
    assert after == ["opted out with an earlier turn"] * 3


def test_a_turn_that_another_server_answered_is_no_opt_out(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello", started_at=BASE, ended_at=BASE + 1.0, upstream="claude")
    later = resumed(any_journal, pen, follow(first, user("more")), 60.0)
    assert links(any_journal)[first.interaction_id].skip_reason == "answered by claude"
    assert later.skip_reason is None


@pytest.mark.parametrize("weeks", [0.01, 60.0])
def test_a_turn_that_another_server_answered_may_be_opted_out(any_journal: Journal, pen: Pen, weeks: float) -> None:
    remote = {"started_at": BASE, "ended_at": BASE + 1.0, "may_train": False, "upstream": "claude"}
    first = pen.say([user("hi")], "hello", **remote)
    later = resumed(any_journal, pen, follow(first, user("more")), weeks)
    assert links(any_journal)[first.interaction_id].skip_reason == "opted out"
    assert later.skip_reason == "opted out with an earlier turn"


def test_an_opt_out_holds_if_several_kept_out_replies_are_alike(any_journal: Journal, pen: Pen) -> None:
    """It does not matter which of them goes on."""
    first = [
        pen.say([user("hi")], "hello", started_at=BASE + i, ended_at=BASE + i + 0.5, may_train=False) for i in range(3)
    ]
    found = resumed(any_journal, pen, follow(first[0], user("more")), 60.0)
    assert (found.parent, found.skip_reason) == (first[2].interaction_id, "opted out with an earlier turn")


@pytest.mark.parametrize(("weeks", "is_found"), [(-0.6, True), (0.01, True), (1.9, True), (3.6, False)])
def test_a_conversation_that_rested_for_more_than_three_weeks_begins_anew(
    any_journal: Journal, pen: Pen, weeks: float, is_found: bool
) -> None:
    first = pen.say([user("hi")], "hello", started_at=BASE, ended_at=BASE + 1.0)
    found = resumed(any_journal, pen, follow(first, user("more")), weeks)
    assert (found.parent, found.rule) == ((first.interaction_id, "prefix") if is_found else (None, "new"))


def test_all_tool_results_together_are_what_came_back(any_journal: Journal, pen: Pen) -> None:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("c1", "c2")]
    first = pen.say([user("look it up")], {"role": "assistant", "content": None, "tool_calls": calls})
    results = [tool("c1", "one"), tool("c2", "two")]
    second = pen.say(follow(first, *results), "done")
    ingest(any_journal, pen)
    assert next_state(any_journal, first) == ("tool_result", results, second.interaction_id)


@pytest.mark.parametrize(
    "extra", [tool("c1", "Write everything in bold."), {"role": "function", "name": "f", "content": "x"}]
)
def test_words_that_a_tool_took_part_in_are_not_a_users(any_journal: Journal, pen: Pen, extra: dict[str, Any]) -> None:
    """Only a user's own words become a hint. Text in one message with a tool's result cannot be separated from it."""
    first = pen.say([user("look it up")], "looking")
    pen.say(follow(first, extra, user("go on")), "done")
    ingest(any_journal, pen)
    found = next_state(any_journal, first)
    assert found is not None and found[0] == "tool_result"


def test_what_a_harness_puts_between_does_not_make_a_result_of_a_users_words(any_journal: Journal, pen: Pen) -> None:
    """aider sends files in the user's name, an "Ok." in the assistant's, and then the user's words."""
    first = pen.say([user("mend it")], "mended")
    behind = [
        user("Here are the files."),
        {"role": "assistant", "content": "Ok."},
        {"role": "system", "content": "Be brief."},
        user("no"),
    ]
    second = pen.say(follow(first, *behind), "again")
    ingest(any_journal, pen)
    assert next_state(any_journal, first) == ("user_reply", behind, second.interaction_id)


def test_an_edited_message_is_a_branch_of_the_same_conversation(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    kept = pen.say(follow(first, user("one way")), "one")
    edited = pen.say(follow(first, user("other way")), "other")
    after_edit = pen.say(follow(edited, user("on")), "end")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert found[kept.interaction_id].parent == found[edited.interaction_id].parent == first.interaction_id
    assert found[after_edit.interaction_id].parent == edited.interaction_id
    assert {link.session for link in found.values()} == {f"s-{first.request_id}"}
    assert {link.skip_reason for link in found.values()} == {None}
    assert next_state(any_journal, first) == ("user_reply", [user("one way")], kept.interaction_id)


def test_a_repeated_prompt_is_a_conversation_of_its_own(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    again = pen.say([user("hi")], "good day")
    after = pen.say(follow(again, user("thanks")), "welcome")
    ingest(any_journal, pen)
    assert parents(any_journal) == {
        first.interaction_id: None,
        again.interaction_id: None,
        after.interaction_id: again.interaction_id,
    }
    assert next_state(any_journal, first) is None


def test_a_retry_in_mid_conversation_continues_the_same_reply(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    lost = pen.say(follow(first, user("more")), "th", is_aborted=True)
    again = pen.say(follow(first, user("more")), "there")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert found[lost.interaction_id].parent == found[again.interaction_id].parent == first.interaction_id
    assert (found[lost.interaction_id].skip_reason, found[again.interaction_id].skip_reason) == ("aborted", None)
    assert next_state(any_journal, first) == ("user_reply", [user("more")], lost.interaction_id)


def test_equal_conversations_that_nothing_tells_apart_are_ambiguous_and_never_trained(
    any_journal: Journal, pen: Pen
) -> None:
    openings = [pen.say([user("hi")], "hello") for _ in range(2)]
    one = pen.say(follow(openings[0], user("I am Ana")), "hello Ana")
    other = pen.say(follow(openings[1], user("I am Ben")), "hello Ben")
    ingest(any_journal, pen)
    found = links(any_journal)
    for turn in (one, other):
        link = found[turn.interaction_id]
        assert (link.rule, link.parent, link.skip_reason) == ("ambiguous", None, "ambiguous session")
        assert link.session not in {found[opening.interaction_id].session for opening in openings}
    assert [next_state(any_journal, opening) for opening in openings] == [None, None]
    assert asked(any_journal) == set()


def test_what_follows_an_ambiguous_turn_is_linked_to_it_again(any_journal: Journal, pen: Pen) -> None:
    openings = [pen.say([user("hi")], "hello") for _ in range(2)]
    unclear = pen.say(follow(openings[0], user("I am Ana")), "hello Ana")
    after = pen.say(follow(unclear, user("what is my name?")), "Ana")
    ingest(any_journal, pen)
    found = links(any_journal)[after.interaction_id]
    assert (found.rule, found.parent, found.skip_reason) == ("prefix", unclear.interaction_id, None)
    assert asked(any_journal) == set()  # the ambiguous turn itself is never judged


@pytest.mark.parametrize("field", ["user", "quoted_session", "key_id", "tenant"])
def test_equal_conversations_are_told_apart_by_who_speaks(any_journal: Journal, pen: Pen, field: str) -> None:
    openings = {name: pen.say([user("hi")], "hello", **{field: name}) for name in ("ana", "ben")}
    for name in ("ben", "ana"):
        pen.say(follow(openings[name], user("on")), f"yes {name}", interaction_id=f"next-{name}", **{field: name})
    ingest(any_journal, pen)
    found = links(any_journal)
    for name, opening in openings.items():
        assert found[f"next-{name}"].parent == opening.interaction_id
        assert found[f"next-{name}"].session == found[opening.interaction_id].session
    assert found["next-ana"].session != found["next-ben"].session


def test_a_quoted_session_holds_turns_together_whatever_their_messages(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello", quoted_session="s1")
    second = pen.say(follow(first, user("on")), "yes", quoted_session="s1")
    cut = pen.say([user("(history summarised) and now?")], "so", quoted_session="s1")
    stranger = pen.say([user("hi")], "hello", quoted_session="s1", key_id="key-2")
    ingest(any_journal, pen)
    found = links(any_journal)
    own = {found[turn.interaction_id].session for turn in (first, second, cut)}
    assert len(own) == 1 and found[stranger.interaction_id].session not in own
    assert {found[turn.interaction_id].rule for turn in (first, second, cut)} == {"header"}
    assert found[second.interaction_id].parent == first.interaction_id
    assert found[cut.interaction_id].parent is None


def test_a_session_is_closed_by_its_client_and_by_silence(any_journal: Journal, pen: Pen) -> None:
    done = pen.say([user("bye")], "bye", quoted_session="s1", is_session_done=True)
    quiet = pen.say([user("hi")], "hello")
    ingest(any_journal, pen)
    with any_journal.read() as session:
        closed = {row.quoted_id: row.closed_at for row in session.query(SessionRow).all()}
    assert closed == {"s1": done.ended_at, None: None}
    Ingester(any_journal, pen.folder, session_timeout=3600.0).run_once()
    with any_journal.read() as session:
        closed = {row.quoted_id: row.closed_at for row in session.query(SessionRow).all()}
        last = {row.quoted_id: row.last_at for row in session.query(SessionRow).all()}
    assert closed["s1"] == done.ended_at  # closed once
    assert closed[None] is not None
    assert last[None] == quiet.ended_at


def test_a_session_knows_its_last_turn(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    second = pen.say(follow(first, user("on")), "yes")
    ingest(any_journal, pen)
    with any_journal.read() as session:
        (row,) = session.query(SessionRow).all()
    assert (row.started_at, row.last_at) == (first.started_at, second.ended_at)


def test_a_closed_conversation_makes_way_for_an_open_one(any_journal: Journal, pen: Pen, tmp_path: Path) -> None:
    pen.say([user("hi")], "hello")
    Ingester(any_journal, pen.folder, session_timeout=3600.0).run_once()
    today = pen.say([user("hi")], "hello")
    after = pen.say(follow(today, user("on")), "yes")
    ingest(any_journal, pen)
    assert links(any_journal)[after.interaction_id].parent == today.interaction_id


def test_each_choice_can_be_continued(any_journal: Journal, pen: Pen) -> None:
    common = {"request_id": "r1", "n_choices": 3}
    texts = ["red", "blue", "blue"]
    choices = [
        pen.say([user("pick")], text, choice=i, interaction_id=f"c#{i}" if i else "c", **common)
        for i, text in enumerate(texts)
    ]
    red = pen.say(follow(choices[0], user("ok")), "fine")
    blue = pen.say(follow(choices[2], user("ok")), "good")
    ingest(any_journal, pen)
    found = links(any_journal)
    assert {found[turn.interaction_id].session for turn in choices} == {"s-r1"}
    assert found[red.interaction_id].parent == "c"
    assert found[blue.interaction_id].parent == "c#1"  # the first of those with the same text
    assert found[blue.interaction_id].skip_reason is None


def test_all_choices_of_a_request_have_the_same_parent(any_journal: Journal, pen: Pen) -> None:
    """The last choice may end first, and the first child of a request must not make its siblings ambiguous."""
    taken = pen.say([user("hi")], "hello")
    pen.say(follow(taken, user("more")), "there")
    ingest(any_journal, pen)  # the first has its follower before the second is asked
    open_one = pen.say([user("hi")], "hello")
    for choice in (1, 0, 2):
        pen.say(
            follow(open_one, user("which?")),
            f"choice {choice}",
            choice=choice,
            n_choices=3,
            request_id="r9",
            interaction_id=f"c9#{choice}" if choice else "c9",
        )
    ingest(any_journal, pen)
    found = links(any_journal)
    assert {found[name].parent for name in ("c9", "c9#1", "c9#2")} == {open_one.interaction_id}
    assert len({found[name].session for name in ("c9", "c9#1", "c9#2", open_one.interaction_id)}) == 1
    assert next_state(any_journal, open_one) == ("user_reply", [user("which?")], "c9")


def test_a_reply_sent_back_changed_is_not_that_reply(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("hi")], "hello")
    second = pen.say(follow(first, user("more")), "there")
    messages = follow(second, user("on"))
    messages[3] = {"role": "assistant", "content": "something that was never said"}
    third = pen.say(messages, "hm")
    ingest(any_journal, pen)
    assert links(any_journal)[third.interaction_id].parent == first.interaction_id
    assert next_state(any_journal, second) is None
    assert next_state(any_journal, first) == ("user_reply", [user("more")], second.interaction_id)
