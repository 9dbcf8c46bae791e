"""The one place that says how a hint enters a prompt.

Hindsight distillation asks the teacher what it would have said had it known: the last user message gets the hint as a
block of its own. The sandbox's base model is pre-trained on this same text, so that it obeys it in context.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_BLOCK = "\n\n(Hint: {hint})"
_NEUTRAL = (
    "answer",
    "this",
    "message",
    "just",
    "as",
    "you",
    "would",
    "answer",
    "any",
    "other",
    "message",
    "of",
    "this",
    "kind",
)


def with_hint(messages: Sequence[Mapping[str, Any]], hint: str) -> list[dict[str, Any]]:
    """A copy of `messages` whose last user message ends with `hint`.

    Content may be a string or a list of parts (a text part is appended). Raises ValueError where no user message exists.
    """
    extended = [dict(message) for message in messages]
    block = _BLOCK.format(hint=hint)
    for message in reversed(extended):
        if message.get("role") == "user":
            content = message.get("content") or ""
            message["content"] = [*content, {"type": "text", "text": block}] if isinstance(content, list) else content + block
            return extended
    raise ValueError("a hint needs a user message to follow, got none")


def neutral(hint: str) -> str:
    """Words as many as in `hint` that ask for nothing: what any hint at all changes shows beside them."""
    n_words = max(1, len(hint.split()))
    words = " ".join(_NEUTRAL[i % len(_NEUTRAL)] for i in range(n_words))
    return words[0].upper() + words[1:] + "."
