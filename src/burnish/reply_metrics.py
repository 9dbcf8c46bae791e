"""Metrics of a reply that need no model: its repetition, and whether its tool calls can be parsed."""

import json
from collections.abc import Hashable, Sequence
from typing import Any

from burnish.records import Message

_MARKS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=")
"""The usual beginnings of a tool call in a template. In a reply's text they show a call that the engine could not
parse.
"""


def repetition(tokens: Sequence[Hashable], n: int = 4) -> float:
    """The share of n-grams in `tokens` (token ids, or words) that occurred before, in [0, 1). 0 for fewer than n
    tokens.
    """
    total = len(tokens) - n + 1
    if total < 1:
        return 0.0
    return 1.0 - len({tuple(tokens[i : i + n]) for i in range(total)}) / total


def tool_calls(reply: Message, has_tools: bool) -> tuple[int, int]:
    """The number of tool calls in `reply`, and of broken ones: arguments that are no JSON object, or a call left in the
    text.
    """
    calls = reply.get("tool_calls") or ()
    broken = sum(not _is_object(call) for call in calls)
    left = _left_in_text(reply.get("content")) if has_tools and not calls else 0
    return len(calls) + left, broken + left


def _is_object(call: Any) -> bool:
    try:
        arguments = call["function"].get("arguments")
        return isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, dict)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _left_in_text(content: Any) -> int:
    return int(isinstance(content, str) and any(mark in content for mark in _MARKS))
