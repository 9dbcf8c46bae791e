"""The kind of a turn: main turn, sub-agent or side call. The client says it, or it is inferred.

A side call (a title, a summary for compaction) is served and kept. It never becomes a next state and is never trained
on. A sub-agent is an agent of its own: its turns are judged and trained on like main turns. The kind is inferred from
tools, system prompt and the continued turn. Later turns can correct it (server/ingest/filing.py): a side call that is
continued was none, and a call without tools at the head of a session with tools was one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from burnish.messages import opening_of, text_of
from burnish.records import Interaction, Message
from burnish.server.ingest.patterns import harness_patterns

QUOTED_TEXT = 16
"""A request that repeats this many characters of another conversation's opening counts as being about it."""

QUOTING = 16_384
"""Characters at both ends of a request in which such a repetition is looked for: some thousand openings, each time."""


class Kind(StrEnum):
    """The kind of a turn in its conversation."""

    MAIN = "main"
    SIDE = "side"
    SUBAGENT = "subagent"


@dataclass(frozen=True, slots=True)
class Parent:
    """The continued turn."""

    kind: Kind
    has_tools: bool


@dataclass(frozen=True, slots=True)
class UserWords:
    """A user's words in a conversation, their first line, and the digest of that conversation's system prompt."""

    text: str
    head: str | None
    line: str = ""

    @classmethod
    def of(cls, text: str, head: str | None) -> "UserWords":
        return cls(text, head, text.partition("\n")[0].strip())


@dataclass(frozen=True, slots=True)
class Conversation:
    """A turn's named session as it was before the turn. `head` is the digest of its first system prompt."""

    has_tools: bool
    head: str | None


def declared_kind(turn_type: str | None) -> Kind | None:
    """The kind that the client names. An unknown word means a side call, as in OpenClaw-RL."""
    if turn_type is None:
        return None
    return {"main": Kind.MAIN, "subagent": Kind.SUBAGENT}.get(turn_type, Kind.SIDE)


def kind_of(
    turn: Interaction, head: str | None, parent: Parent | None, known: Conversation | None, others: Sequence[UserWords]
) -> tuple[Kind, str]:
    """The kind and the reason for it.

    `head` is the digest of the turn's own system prompt. `known` is the session that it names, None if that is new or
    none is named. `others` are the first and last words of users in the caller's other recent conversations.
    """
    if (word := declared_kind(turn.turn_type)) is not None:
        return word, "told"
    if turn.messages and harness_patterns.is_summary(text_of(turn.messages[-1])):
        return Kind.SIDE, "asks for a summary in a known harness's words"
    has_tools = bool(turn.tools)
    if parent is not None:
        if parent.has_tools and not has_tools:
            return Kind.SIDE, "no tools, while the turn before has them"
        return (Kind.MAIN if parent.kind is Kind.SIDE else parent.kind), "continues"
    if known is not None:
        if known.has_tools and not has_tools:
            return Kind.SIDE, "no tools, while its session has them"
        if has_tools and not known.has_tools:  # the earlier turns, a title perhaps, were side calls
            return Kind.MAIN, "begins"
        if known.head != head:
            return (
                (Kind.SUBAGENT, "another system prompt")
                if has_tools
                else (Kind.SIDE, "another system prompt, no tools")
            )
        return Kind.MAIN, "begins again"
    if not has_tools and is_about(turn.messages, head, others):
        return Kind.SIDE, "is about another conversation"
    return Kind.MAIN, "begins"


def is_about(messages: Sequence[Message], head: str | None, others: Sequence[UserWords]) -> bool:
    """True if a single question holds another conversation's words and more: it asks for a title or a commit message.

    All of the words must be repeated. Under a system prompt of its own (`head`) their first line is enough, because
    harnesses quote what the user typed and not what they added.
    """
    if any(message.get("role") == "assistant" for message in messages):
        return False  # a conversation of its own, whatever it quotes
    asked = "\n".join(text_of(message) for message in messages)
    if len(asked) > 2 * QUOTING:
        asked = f"{asked[:QUOTING]}\n{asked[-QUOTING:]}"
    opening = opening_of(messages)
    for said in others:
        text = said.text if said.head == head else said.line
        if len(text) >= QUOTED_TEXT and text in asked and not opening.startswith(text):
            return True
    return False
