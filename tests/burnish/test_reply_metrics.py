"""Repetition and broken tool calls, counted from a reply alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.reply_metrics import repetition, tool_calls


@pytest.mark.parametrize(
    ("ids", "share"),
    [([], 0.0), ([1, 2, 3], 0.0), ([1, 2, 3, 4, 5], 0.0), ([7] * 8, 4 / 5), ([1, 2, 3, 4] * 2, 1 / 5)],
)
def test_repeated_four_grams_are_counted(ids: list[int], share: float) -> None:
    assert repetition(ids) == pytest.approx(share)


@given(st.lists(st.integers(0, 5), max_size=60))
def test_repetition_is_a_share_and_grows_when_all_is_said_twice(ids: list[int]) -> None:
    assert 0.0 <= repetition(ids) < 1.0
    assert repetition(ids + ids) >= repetition(ids) - 1e-12


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("reply", "counts"),
    [
        ({"content": "hello"}, (0, 0)),
        ({"tool_calls": [call('{"a": 1}'), call("{}"), call({"a": 1})]}, (3, 0)),
        ({"tool_calls": [call('{"a": '), call("[1]"), call(None), {"function": None}]}, (4, 4)),
        ({"content": '<tool_call>{"name": "f", '}, (1, 1)),
        ({"content": None, "tool_calls": None}, (0, 0)),
    ],
)
def test_tool_calls_are_counted_and_read(reply: dict[str, Any], counts: tuple[int, int]) -> None:
    assert tool_calls(reply, has_tools=True) == counts


def test_without_tools_a_mark_in_the_text_is_text() -> None:
    assert tool_calls({"content": "write <tool_call> like this"}, has_tools=False) == (0, 0)
