"""`/good`, `/bad`, `/undo` as a user's whole message: found, and kept out of what the model reads.

Pure functions of messages in chat form. A command in the history goes together with the gateway's answer to it, so the
conversation reads as if neither had been said, and it is linked, judged and trained like that. A command that a model
has answered stays, because then the model's words were about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from burnish.messages import text_of

MARK = "[burnish] "
"""How each answer of the gateway's own begins."""
GOOD, BAD, UNDO = "/good", "/bad", "/undo"
RATINGS = {GOOD: 1.0, BAD: -1.0, UNDO: None}
ADDED = (
    "system-reminder",  # Claude Code
    "command-message",
    "command-name",
    "command-args",
    "environment_context",  # Codex
)
"""Tags in which harnesses put their own words before or after what the user typed."""
_NOT_SPOKEN = ("system", "developer")
"""Roles of messages that a harness adds anywhere, behind the user's too."""
MAX_LENGTH = 64_000
"""Characters of a message beyond which it is no command."""
_HINTS = (b"/good", b"/Good", b"/bad", b"/Bad", b"/undo", b"/Undo")
"""A message with none of these bytes holds no command, and need not be parsed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What was said. `comment` is the rest of the message, None if there is none."""

    name: str
    comment: str | None = None

    @property
    def rating(self) -> float | None:
        """1 or -1. None takes the rating back."""
        return RATINGS[self.name]


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation without its commands, and the command that it ends with, None if it ends with another message."""

    messages: list[dict[str, Any]]
    last: Command | None


def look(messages: msgspec.Raw) -> Found | None:
    """The conversation without its commands. None if it holds none, so that nothing has to change."""
    text = bytes(messages)
    if not any(hint in text for hint in _HINTS):
        return None
    given = _decode(text)
    spoken = [at for at, message in enumerate(given) if message.get("role") not in _NOT_SPOKEN]
    commands = {at: found for at in spoken if (found := command_of(given[at])) is not None}
    following = dict(pairwise(spoken))
    left_out: set[int] = set()
    for at in commands:
        answer = following.get(at)
        if answer is None or given[answer].get("role") != "assistant":
            left_out.add(at)
        elif text_of(given[answer]).startswith(MARK.strip()):
            left_out |= {at, answer}
    if not left_out:
        return None
    kept = [message for at, message in enumerate(given) if at not in left_out]
    return Found(kept, commands.get(spoken[-1]))


def command_of(message: dict[str, Any]) -> Command | None:
    """The command that is all of a user's message."""
    if message.get("role") != "user" or _has_media(message.get("content")):
        return None
    text = text_of(message)
    if len(text) > MAX_LENGTH:
        return None
    word, _, rest = _unquoted(_typed(text)).partition(" ")
    if "\n" in word:
        word, _, more = word.partition("\n")
        rest = f"{more} {rest}"
    name = word.strip()
    name = name[:2].lower() + name[2:]
    if name not in RATINGS or (name == UNDO and rest.strip()):
        return None
    return Command(name, _unquoted(rest.strip()) or None)


def up_to_the_last_reply(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation that ends with its last reply. Empty if there is none."""
    last = max((at for at, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    return list(messages[: last + 1])


def _typed(text: str) -> str:
    """What is left of `text` without what a harness has put around it."""
    while (tag := next((tag for tag in ADDED if text.startswith(f"<{tag}>")), None)) is not None:
        end = text.find(f"</{tag}>")
        if end < 0:
            break
        text = text[end + len(tag) + 3 :].strip()
    while (tag := next((tag for tag in ADDED if text.endswith(f"</{tag}>")), None)) is not None:
        start = text.rfind(f"<{tag}>")
        if start < 0:
            break
        text = text[:start].strip()
    return text


def _unquoted(text: str) -> str:
    """`text` without the quotation marks around it, which opencode adds to what comes from its command line."""
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] == '"' else text


def _has_media(content: Any) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") != "text" for part in content)


_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode
