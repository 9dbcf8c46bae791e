"""Replies without content are found by rule. Replies with content, however short, are not."""

import pytest

from benchmarks.judging.masterkeys import KEYS, REQUEST, WITH_CONTENT
from burnish.judges import prefilter
from tests.factories import assistant, user


@pytest.mark.parametrize("reply", KEYS)
def test_a_reply_without_content_matches_a_rule(reply: str) -> None:
    assert prefilter.reason([user("hello"), user(REQUEST)], {"role": "assistant", "content": reply}) is not None


@pytest.mark.parametrize("reply", WITH_CONTENT)
def test_a_reply_with_content_matches_no_rule(reply: str) -> None:
    assert prefilter.reason([user(REQUEST)], {"role": "assistant", "content": reply}) is None


def test_a_tool_call_is_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert prefilter.reason([user(REQUEST)], {"role": "assistant", "content": None, "tool_calls": [call]}) is None
    assert prefilter.reason([user(REQUEST)], {"role": "assistant", "content": None}) == prefilter.EMPTY


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ": "}], [{"type": "text"}], ["Solution"]])
def test_content_in_parts_is_read_too(content: object) -> None:
    assert prefilter.reason([user(REQUEST)], {"role": "assistant", "content": content}) is not None


def test_a_picture_is_content() -> None:
    reply = {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    assert prefilter.reason([user(REQUEST)], reply) is None


def test_hi_may_be_answered_with_hi() -> None:
    assert prefilter.reason([user("Hi!")], {"role": "assistant", "content": "Hi"}) is None
    assert (
        prefilter.reason([user("how are you doing")], {"role": "assistant", "content": "How are you doing?"})
        == prefilter.ECHO
    )


def test_of_long_texts_the_rest_counts_as_it_is() -> None:
    long = "Word " * 5_000
    assert prefilter.reason([user(long)], assistant(long.upper()[:20_000] + long[20_000:])) == "repeats the request"
    assert prefilter.reason([user(long)], assistant(f"{long} and more")) is None
    assert prefilter.reason([user("x")], assistant("…" * 30_000)) == "punctuation only"
    assert prefilter.reason([user("x")], assistant("…" * 30_000 + "yes")) is None
