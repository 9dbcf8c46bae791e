"""A record before it meets the journal: everything that takes time for a long text and needs no SQL.

The ingester prepares records before it takes the journal's write lock, so that no writer waits for somebody's long
conversation to be parsed and hashed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from burnish.journal.blobs import is_storable, storable, text_of
from burnish.records import Feedback, Interaction, Message
from burnish.segments.frames import Record
from burnish.segments.texts import once
from burnish.server.ingest.linking import Trace


class Blob(NamedTuple):
    """A message or a tool list as it is stored."""

    digest: str
    body: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """One interaction with its hashes and its stored texts. `head` is the digest of its system prompt.

    `session_id` is that of the session that the turn names, None if it names none.
    """

    turn: Interaction
    trace: Trace
    messages: Sequence[Blob]
    tools: Blob | None
    reply: Blob
    head: str | None
    session_id: str | None

    @classmethod
    def of(cls, turn: Interaction) -> "Prepared":
        messages = [_blob(message) for message in turn.messages]
        tools = _blob(turn.tools) if turn.tools else None
        named = _quoted_id(turn) if turn.quoted_session else None
        return cls(turn, Trace(turn), messages, tools, _blob(turn.reply), head_of(turn.messages), named)


def head_of(messages: Sequence[Message]) -> str | None:
    """The digest of the system prompt."""
    return next((_blob(message).digest for message in messages if message.get("role") == "system"), None)


def without_unstorable(record: Record) -> Record:
    """`record` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate
    pairs."""
    names = _FEEDBACK if isinstance(record, Feedback) else _INTERACTION
    texts = {name: value for name in names if isinstance(value := getattr(record, name), str)}
    if is_storable("".join(texts.values())):
        return record
    clean: dict[str, Any] = {name: storable(text) for name, text in texts.items()}
    return replace(record, **clean)


@once
def _blob(value: Any) -> Blob:
    return Blob(*text_of(value))


def _quoted_id(turn: Interaction) -> str:
    """The session id for the name that a turn quotes. Names under different keys or of different users never meet."""
    asker = [turn.tenant, turn.key_id, *([turn.user] if turn.user else [])]
    return "q-" + hashlib.sha256("\0".join([*asker, str(turn.quoted_session)]).encode()).hexdigest()[:24]


_FEEDBACK, _INTERACTION = (
    tuple(field.name for field in fields(kind) if "str" in str(field.type)) for kind in (Feedback, Interaction)
)
