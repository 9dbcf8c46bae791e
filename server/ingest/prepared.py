"""A record before it meets the journal: everything that takes time for a long text and needs no SQL.

The ingester prepares records before it takes the journal's write lock, so that no writer waits for somebody's long
conversation to be parsed and hashed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from burnish.journal.blobs import storable, text_of
from burnish.records import Interaction, Message
from burnish.segments.frames import Record
from burnish.server.ingest.linking import Trace


class Blob(NamedTuple):
    """A message or a tool list as it is stored."""

    digest: str
    body: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """One interaction with its hashes and its stored texts. `head` is the digest of its system prompt."""

    turn: Interaction
    trace: Trace
    messages: Sequence[Blob]
    tools: Blob | None
    reply: Blob
    head: str | None

    @classmethod
    def of(cls, turn: Interaction) -> "Prepared":
        messages = [Blob(*text_of(message)) for message in turn.messages]
        tools = Blob(*text_of(list(turn.tools))) if turn.tools else None
        return cls(turn, Trace(turn), messages, tools, Blob(*text_of(turn.reply)), head_of(turn.messages))


def head_of(messages: Sequence[Message]) -> str | None:
    """The digest of the system prompt."""
    return next((text_of(message)[0] for message in messages if message.get("role") == "system"), None)


def without_unstorable(record: Record) -> Record:
    """`record` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate
    pairs."""
    texts = {name: value for name in record.__dataclass_fields__ if isinstance(value := getattr(record, name), str)}
    changed: dict[str, Any] = {name: clean for name, text in texts.items() if (clean := storable(text)) != text}
    return replace(record, **changed) if changed else record
