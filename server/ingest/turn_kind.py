"""Main turn, sub-agent or side call: told by the client, else inferred from tools, system prompt and what is continued.

A side call (a title, a summary for compaction) is served and kept; it never becomes what came back after a turn, and is
never trained. A sub-agent is an agent in its own right: its turns are judged and trained like main ones. What was
inferred can be corrected by what comes later (server/ingest/filing.py): a side call that is continued was none, and a
call without tools at the head of a session whose later turns have tools was one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from burnish.messages import opening_of, text_of
from burnish.records import Interaction, Message
from burnish.server.ingest import harness_patterns

QUOTED_TEXT = 16
"""Characters of another conversation's opening that a request must repeat to count as being about that conversation."""


class Kind(StrEnum):
    """What a turn is to its conversation."""

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
    """Words of a user in a conversation, their first line, and the digest of that conversation's system prompt."""

    text: str
    head: str | None
    line: str = ""

    @classmethod
    def of(cls, text: str, head: str | None) -> "UserWords":
        return cls(text, head, text.partition("\n")[0].strip())


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is known of the session that a turn names, before the turn. `head` is the digest of its first system prompt."""

    has_tools: bool
    head: str | None


def told(turn_type: str | None) -> Kind | None:
    """What the client says; a word that means nothing here is a side call, as OpenClaw-RL has it."""
    if turn_type is None:
        return None
    return {"main": Kind.MAIN, "subagent": Kind.SUBAGENT}.get(turn_type, Kind.SIDE)


def kind_of(
    turn: Interaction, head: str | None, parent: Parent | None, known: Conversation | None, others: Sequence[UserWords]
) -> tuple[Kind, str]:
    """The kind and the reason for it.

    `head` is the digest of the turn's own system prompt; `known` the session that it names, None where that is new or
    none is named; `others` is what users said first and last in the caller's other recent conversations.
    """
    if (word := told(turn.turn_type)) is not None:
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
        if has_tools and not known.has_tools:  # what came before, a title perhaps, was beside it
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
    """True where a lone question holds another conversation's words and more: a title or a commit message is asked for.

    The words are all that was said; under a system prompt of its own (`head`) a first line will do, since harnesses
    quote what the user typed and not what they added to it.
    """
    if any(message.get("role") == "assistant" for message in messages):
        return False  # a conversation of its own, whatever it quotes
    asked = "\n".join(text_of(message) for message in messages)
    opening = opening_of(messages)
    for said in others:
        text = said.text if said.head == head else said.line
        if len(text) >= QUOTED_TEXT and text in asked and not opening.startswith(text):
            return True
    return False
