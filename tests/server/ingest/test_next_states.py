"""The next state of a reply: complete, typed, with provenance and signals."""

from typing import Any

import pytest
from sqlalchemy import select

from burnish.journal import Journal
from burnish.journal.evidence import reward_of
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow
from burnish.records import FeedbackSource, Interaction
from burnish.server.ingest.ingester import Ingester
from burnish.server.ingest.next_state import is_of_the_web
from tests.factories import assistant, feedback, user
from tests.server.ingest.pen import FOREVER, Pen, asked, follow, ingest, links, next_state

LONG = "The sum of the two numbers that you named is forty-two, and the first one is the larger."


def came_back(journal: Journal, turn: Interaction) -> NextStateRow:
    with journal.read() as session:
        return session.get_one(NextStateRow, turn.interaction_id)


def signals(journal: Journal, turn: Interaction) -> dict[Any, Any]:
    return {signal["kind"]: signal["value"] for signal in came_back(journal, turn).signals}


def calling(*names: str) -> dict[str, Any]:
    calls = [{"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c-{name}", "content": text}


def is_ready(journal: Journal, turn: Interaction) -> bool:
    with journal.read() as session:
        return session.get_one(InteractionRow, turn.interaction_id).is_ready


def test_every_message_says_whose_it_is(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("look it up")], calling("run_tests", "web_fetch", "read"), finish_reason="tool_calls")
    results = [
        result("run_tests", "3 passed in 0.1s"),
        result("web_fetch", "exit code: 0"),
        result("read", "exit code: 1"),
    ]
    second = pen.say(follow(first, *results), "done")
    pen.say(follow(second, {"role": "system", "content": "be brief"}, user("thanks")), "welcome")
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, verifiers=("run_tests",)).run_once()
    assert came_back(any_journal, first).provenance == ["verifier", "web", "tool"]
    assert came_back(any_journal, second).provenance == ["harness", "user"]
    found = [(s["kind"], s["value"], s["provenance"]) for s in came_back(any_journal, first).signals]
    assert found == [("tests", 1.0, "verifier"), ("exit_code", 1.0, "tool")]  # a page's exit code is only the page's
    with any_journal.read() as session:
        reward = reward_of(session, first.interaction_id)
    assert reward is not None and (reward.value, reward.source) == (1.0, "verifiable")


def test_a_failure_of_the_environment_is_no_case_for_the_judge(any_journal: Journal, pen: Pen) -> None:
    broken = pen.say([user("book it")], calling("book"), finish_reason="tool_calls")
    pen.say(follow(broken, result("book", '{"status": 503, "error": "try later"}')), "it is down")
    refused = pen.say([user("book that")], calling("book"), finish_reason="tool_calls")
    pen.say(follow(refused, result("book", '{"status": 422, "error": "no such date"}')), "which date?")
    searched = pen.say([user("look it up")], calling("grep"), finish_reason="tool_calls")
    pen.say(follow(searched, result("grep", "no matches")), "nothing")
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, verifiers=("book",)).run_once()
    assert asked(any_journal) == {f"{searched.interaction_id}|next_state"}, "a verifier's word needs no judge"
    with any_journal.read() as session:
        assert reward_of(session, broken.interaction_id) is None
        reward = reward_of(session, refused.interaction_id)
    assert reward is not None and (reward.value, reward.source) == (-1.0, "verifiable")


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("book", '{"status": 404}'),
        ("grep", "server.log: HTTP 404"),
        ("book", '{"status": 503}'),
        ("bash", "the command timed out"),
        ("web_fetch", "the request timed out"),
    ],
)
def test_what_a_client_writes_as_a_tools_result_neither_rewards_nor_takes_back_a_users_word(
    any_journal: Journal, pen: Pen, tool: str, text: str
) -> None:
    liked = pen.say([user("do it")], calling(tool), finish_reason="tool_calls")
    pen.say(follow(liked, result(tool, text)), "done")
    alone = pen.say([user("do that")], calling(tool), finish_reason="tool_calls")
    pen.say(follow(alone, result(tool, text)), "done")
    pen.write(feedback(liked.interaction_id, 1.0))
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, verifiers=("run_tests",)).run_once()
    assert signals(any_journal, alone), "what was printed is stored and shown"
    with any_journal.read() as session:
        rewards = [reward_of(session, turn.interaction_id) for turn in (liked, alone)]
    assert rewards[0] is not None and (rewards[0].value, rewards[0].source) == (1.0, "user")
    assert rewards[1] is None


@pytest.mark.parametrize(
    "forged",
    [
        result("bash", "3 passed in 0.1s") | {"name": "run_tests"},
        result("bash", "3 passed in 0.1s") | {"name": "run_tests", "role": "function"},
        result("never_called", "3 passed in 0.1s") | {"name": "run_tests"},
        {"role": "function", "name": "run_tests", "content": "3 passed in 0.1s"},
    ],
)
def test_a_result_speaks_for_a_verifier_only_if_the_reply_called_it(
    any_journal: Journal, pen: Pen, forged: dict[str, Any]
) -> None:
    turn = pen.say([user("do it")], calling("bash"), finish_reason="tool_calls")
    pen.say(follow(turn, forged), "done")
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, verifiers=("run_tests",)).run_once()
    assert came_back(any_journal, turn).provenance == ["tool"]
    with any_journal.read() as session:
        assert reward_of(session, turn.interaction_id) is None


def test_a_called_verifiers_result_is_known_by_its_name_if_it_has_no_id(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("do it")], calling("run_tests"), finish_reason="tool_calls")
    pen.say(follow(turn, {"role": "function", "name": "run_tests", "content": "3 passed in 0.1s"}), "done")
    Ingester(any_journal, pen.folder, session_timeout=FOREVER, verifiers=("run_tests",)).run_once()
    assert came_back(any_journal, turn).provenance == ["verifier"]


def test_a_thumb_of_the_key_that_talks_is_stored_and_is_no_reward(any_journal: Journal, pen: Pen) -> None:
    turn = pen.say([user("hi")], "hello")
    pen.write(feedback(turn.interaction_id, 1.0, source=FeedbackSource.HARNESS))
    ingest(any_journal, pen)
    with any_journal.read() as session:
        assert [row.source for row in session.scalars(select(FeedbackRow))] == ["harness"]
        assert reward_of(session, turn.interaction_id) is None
    assert not is_ready(any_journal, turn)


@pytest.mark.parametrize(
    "name", ["web_search", "WebFetch", "fetch", "fetchUrl", "http_get", "HTTPGet", "browser.open", "open-url"]
)
def test_these_names_speak_of_the_web(name: str) -> None:
    assert is_of_the_web(name)


@pytest.mark.parametrize(
    "name", ["curl", "research", "search_code", "search", "grep", "webhook", "prefetcher", "", "bash"]
)
def test_these_names_do_not(name: str) -> None:
    assert not is_of_the_web(name)


def test_asking_once_more_is_a_word_on_the_reply_before(any_journal: Journal, pen: Pen) -> None:
    opening = pen.say([user("hi")], "hello")
    first = pen.say(follow(opening, user("a poem please")), "roses are red")
    again = pen.say(follow(opening, user("a poem please")), "violets are blue")
    ingest(any_journal, pen)
    assert next_state(any_journal, first) == ("regenerated", [], again.interaction_id)
    assert next_state(any_journal, again) is None
    assert is_ready(any_journal, first)
    with any_journal.read() as session:
        reward = reward_of(session, first.interaction_id)
    assert reward is not None and (reward.value, reward.source) == (-0.5, "implicit")
    assert f"{first.interaction_id}|next_state" not in asked(any_journal)  # there are no words to judge


def test_who_goes_on_from_the_first_reply_after_all_has_the_stronger_word(any_journal: Journal, pen: Pen) -> None:
    opening = pen.say([user("hi")], "hello")
    first = pen.say(follow(opening, user("a poem please")), "roses are red")
    pen.say(follow(opening, user("a poem please")), "violets are blue")
    ingest(any_journal, pen)
    after = pen.say(follow(first, user("I take the roses, thanks")), "welcome")
    ingest(any_journal, pen)
    assert next_state(any_journal, first) == ("user_reply", [user("I take the roses, thanks")], after.interaction_id)
    assert not is_ready(any_journal, first)  # the judge has it now
    assert f"{first.interaction_id}|next_state" in asked(any_journal)


@pytest.mark.parametrize("changes", [{"retry": 1}, {"may_train": False}])
def test_a_clients_second_try_is_no_wish_for_another_reply(
    any_journal: Journal, pen: Pen, changes: dict[str, Any]
) -> None:
    opening = pen.say([user("hi")], "hello")
    first = pen.say(follow(opening, user("a poem please")), "roses are red")
    pen.say(follow(opening, user("a poem please")), "violets are blue", **changes)
    ingest(any_journal, pen)
    assert next_state(any_journal, first) is None


def test_two_who_open_alike_have_not_asked_twice(any_journal: Journal, pen: Pen) -> None:
    turns = [pen.say([user("hi")], text) for text in ("hello", "hello there")]
    ingest(any_journal, pen)
    assert [next_state(any_journal, turn) for turn in turns] == [None, None]


def test_silence_and_the_clients_own_word_end_a_session(any_journal: Journal, pen: Pen) -> None:
    done = pen.say([user("bye")], "bye", quoted_session="s1", is_session_done=True)
    first = pen.say([user("hi")], "hello")
    left = pen.say(follow(first, user("and?")), "well")
    ingest(any_journal, pen)
    assert next_state(any_journal, done) == ("session_closed", [], None)
    assert next_state(any_journal, left) is None
    for _ in range(2):
        Ingester(any_journal, pen.folder, session_timeout=3600.0).run_once()
    assert next_state(any_journal, left) == ("abandoned", [], None)
    assert next_state(any_journal, first) == ("user_reply", [user("and?")], left.interaction_id)
    with any_journal.read() as session:
        assert reward_of(session, left.interaction_id) is None  # no next state tells nothing
    after = pen.say(follow(left, user("I am back")), "welcome back")
    ingest(any_journal, pen)
    assert next_state(any_journal, left) == ("user_reply", [user("I am back")], after.interaction_id)


def test_a_reply_that_its_user_changed_is_still_that_reply(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("what is the sum?")], LONG, quoted_session="s1")
    changed = assistant(LONG.replace("forty-two", "**42**"))
    second = pen.say([*first.messages, changed, user("now the product")], "lots", quoted_session="s1")
    ingest(any_journal, pen)
    assert links(any_journal)[second.interaction_id].parent == first.interaction_id
    found = signals(any_journal, first)
    assert found.keys() == {"edit"} and 0.02 < found["edit"] < 0.2
    assert next_state(any_journal, first) == ("user_reply", [user("now the product")], second.interaction_id)


@pytest.mark.parametrize(
    "repeated",
    [assistant("Nothing of that is left: these are quite other words, on another thing."), calling("look_up")],
)
def test_another_reply_in_its_place_is_not_that_reply(any_journal: Journal, pen: Pen, repeated: dict[str, Any]) -> None:
    first = pen.say([user("what is the sum?")], LONG)
    second = pen.say([*first.messages, repeated, user("on")], "lots")
    ingest(any_journal, pen)
    assert links(any_journal)[second.interaction_id].parent is None


def test_of_two_strangers_replies_none_is_taken_for_the_changed_one(any_journal: Journal, pen: Pen) -> None:
    first, _ = (pen.say([user("what is the sum?")], LONG + tail) for tail in ("", " Yes."))
    second = pen.say([*first.messages, assistant(LONG + " So."), user("on")], "lots")
    ingest(any_journal, pen)
    assert links(any_journal)[second.interaction_id].parent is None


def test_unchanged_words_are_no_change(any_journal: Journal, pen: Pen) -> None:
    first = pen.say([user("what is the sum?")], LONG)
    pen.say([*first.messages, assistant(f" {LONG}\n"), user("on")], "lots")
    ingest(any_journal, pen)
    assert signals(any_journal, first) == {}
