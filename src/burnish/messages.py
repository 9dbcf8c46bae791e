"""Reading chat messages: the text of a message, and how a conversation opens."""

from collections.abc import Sequence
from typing import Any

from burnish.records import Message


def text_of(message: Message) -> str:
    """A message's text, or its text parts joined."""
    content: Any = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content.strip() if isinstance(content, str) else ""


def opening_of(messages: Sequence[Message]) -> str:
    """The text of the first user message."""
    return next((text_of(message) for message in messages if message.get("role") == "user"), "")
