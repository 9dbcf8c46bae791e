"""Which messages are equal, and which reply a request continues: pure functions."""

import json
from typing import Any

import pytest

from burnish.records import LinkRule, Message
from burnish.segments.texts import READ
from burnish.server.ingest.linking import Candidate, Trace, choose, is_same, prefix_hashes
from tests.factories import assistant, interaction, user


def call(arguments: Any, name: str = "f", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def candidate(name: str, request_id: str | None = None, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {"session_id": "s", "choice": 0, "has_follower": False, "is_closed": False}
    return Candidate(interaction_id=name, request_id=request_id or name, **fields | changes)


PLAIN = {"role": "assistant", "content": "Hello there."}
CALLING = {"role": "assistant", "content": None, "tool_calls": [call('{"a": 1, "b": [2, 3]}')]}


@pytest.mark.parametrize(
    ("recorded", "resent"),
    [
        (PLAIN, PLAIN | {"refusal": None, "annotations": [], "reasoning_content": "hm", "audio": None}),
        (PLAIN, PLAIN | {"content": "  Hello there.\n"}),
        (PLAIN, PLAIN | {"content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there."}]}),
        (PLAIN, PLAIN | {"tool_calls": []}),
        (PLAIN, PLAIN | {"tool_calls": None}),
        (CALLING, CALLING | {"content": ""}),
        (CALLING, CALLING | {"content": []}),
        (CALLING, CALLING | {"tool_calls": [call('{"b":[2,3],"a":1}')]}),
        (CALLING, CALLING | {"tool_calls": [call({"b": [2, 3], "a": 1})]}),
        (CALLING, CALLING | {"tool_calls": [call('{"a": 1, "b": [2, 3]}') | {"index": 0}]}),
    ],
)
def test_a_message_sent_back_in_another_dress_is_the_same(recorded: dict[str, Any], resent: dict[str, Any]) -> None:
    turn = interaction([user("hi")])
    assert prefix_hashes("s", [*turn.messages, recorded]) == prefix_hashes("s", [*turn.messages, resent])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PLAIN, PLAIN | {"content": "Hello there"}),
        (PLAIN, PLAIN | {"role": "user"}),
        (
            PLAIN,
            PLAIN
            | {"content": [{"type": "text", "text": "Hello there."}, {"type": "image_url", "image_url": {"url": "x"}}]},
        ),
        (CALLING, CALLING | {"tool_calls": [call('{"a": 2, "b": [2, 3]}')]}),
        (CALLING, CALLING | {"tool_calls": [call('{"a": 1, "b": [3, 2]}')]}),
        (CALLING, CALLING | {"tool_calls": [call('{"a": 1, "b": [2, 3]}', name="g")]}),
        (CALLING, CALLING | {"tool_calls": [call('{"a": 1, "b": [2, 3]}', call_id="c2")]}),
        (CALLING, CALLING | {"tool_calls": [call("{not json")]}),
        ({"role": "tool", "content": "1", "tool_call_id": "a"}, {"role": "tool", "content": "1", "tool_call_id": "b"}),
    ],
)
def test_a_message_that_says_something_else_is_another(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert prefix_hashes("s", [one]) != prefix_hashes("s", [other])


@pytest.mark.parametrize(
    "strange",
    [
        {"role": "assistant", "tool_calls": "none"},
        {"role": "assistant", "tool_calls": {"id": "x"}},
        {"role": "assistant", "tool_calls": 3},
        {"role": "assistant", "tool_calls": [None, 1, {"function": None}, {"function": "f"}]},
        {"role": "assistant", "content": [None, "text", 3]},
        {"role": "assistant", "content": {"a": [1]}},
        {"role": "assistant", "content": 0.5, "name": ["x"]},
        {"role": "assistant", "content": "\ud83d"},
    ],
)
def test_strange_messages_have_a_hash_too(strange: dict[str, Any]) -> None:
    """A record can hold anything that a client sent, and no record may stop the ingester."""
    assert prefix_hashes("s", [strange]) == prefix_hashes("s", [dict(strange)])
    assert prefix_hashes("s", [strange]) != prefix_hashes("s", [user("x")])


def test_a_hash_that_is_remembered_with_a_message_is_that_of_its_place() -> None:
    """The ingester's messages keep their last hash. The same message may be elsewhere in another conversation."""
    plain = [user("a"), assistant("x"), user("a"), assistant("x"), user("b")]
    texts = [READ.of(json.dumps(message).encode()) for message in plain]
    assert texts[0] is texts[2]
    for scope, messages in (("s", slice(0, 5)), ("t", slice(0, 5)), ("s", slice(2, 5)), ("s", slice(0, 3))):
        assert prefix_hashes(scope, texts[messages]) == prefix_hashes(scope, plain[messages])


def test_a_prefix_is_more_than_its_last_message() -> None:
    one = prefix_hashes("s", [user("a"), assistant("x"), user("b")])
    other = prefix_hashes("s", [user("c"), assistant("x"), user("b")])
    assert not set(one) & set(other)
    assert prefix_hashes("s", [user("a")]) == one[:1]


def test_who_asks_whom_keeps_equal_conversations_apart() -> None:
    same = [user("hi")]
    hashes = {
        Trace(interaction(same, **changes)).tail
        for changes in (
            {},
            {"tenant": "other"},
            {"key_id": "key-2"},
            {"agent": "other"},
            {"user": "ana"},
            {"user": "ana", "quoted_user": "bob"},
            {"user": "eve", "quoted_user": "bob"},
            {"quoted_user": "bob"},
            {"quoted_session": "ana"},
        )
    }
    assert len(hashes) == 9
    named = Trace(interaction(same, user="ana", quoted_user="ana")).tail
    assert named == Trace(interaction(same, quoted_user="ana")).tail, "a conversation goes on when its user is proved"
    assert Trace(interaction(same, version=7, interaction_id="x")).tail in hashes


def test_the_longest_prefix_is_tried_first() -> None:
    turn = interaction([user("a"), assistant("x"), user("b"), assistant("y"), user("c")])
    places = Trace(turn).continuations()
    assert [start for start, _ in places] == [4, 2]
    assert places[0][1] == Trace(interaction([user("a"), assistant("x"), user("b")], "y")).tail
    assert Trace(interaction([user("a")])).continuations() == []


@pytest.mark.parametrize(
    ("candidates", "rule", "parent"),
    [
        ([candidate("a")], LinkRule.PREFIX, "a"),
        ([candidate("a", has_follower=True)], LinkRule.PREFIX, "a"),  # a branch
        ([candidate("a", is_closed=True)], LinkRule.PREFIX, "a"),
        ([candidate("a#1", "r", choice=1), candidate("a", "r")], LinkRule.PREFIX, "a"),
        ([candidate("a", has_follower=True), candidate("b")], LinkRule.PREFIX, "b"),
        ([candidate("a"), candidate("b", is_closed=True)], LinkRule.PREFIX, "a"),
        (
            [candidate("a", ended_at=1.0), candidate("b", ended_at=2.0)],
            LinkRule.PREFIX,
            "b",
        ),  # asked again in one conversation
        ([candidate("a"), candidate("b", session_id="t")], LinkRule.AMBIGUOUS, None),
        ([candidate("a", has_follower=True), candidate("b", has_follower=True)], LinkRule.AMBIGUOUS, None),
    ],
)
def test_a_parent_is_chosen_or_nothing_is(candidates: list[Candidate], rule: LinkRule, parent: str | None) -> None:
    link = choose(candidates, LinkRule.PREFIX)
    assert (link.rule, link.parent.interaction_id if link.parent else None) == (rule, parent)


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("content", ["a", ' "ü" \n', "", 'ok Calling tools: [{"id": 1}]'])
def test_a_message_is_the_same_with_fields_that_say_nothing(role: str, content: str) -> None:
    short: Message = {"role": role, "content": content}
    assert is_same(short, {**short, "tool_calls": None, "name": None})
    assert not is_same(short, {**short, "name": "ann"})
