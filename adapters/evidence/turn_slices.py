"""The slices of recorded turns: route, key, tool, language, system prompt.

Only what was known before the reply counts. Otherwise a version could move turns from one slice into another.
An operator who wants slices of his own gives each application a key of its own.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.languages import language_of
from burnish.journal.tables import InteractionRow
from burnish.journal.turns import MANY, blobs_of
from burnish.messages import text_of
from burnish.records import Message

TAIL = 6
"""Messages at a prompt's end that are read."""
SHOWN = 40
"""Characters of a system prompt that its slice shows."""


def slices_of(session: Session, interaction_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The slices of each of the turns. Turns that were erased have none."""
    names = list(interaction_ids)
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(names), MANY // 10):
        some = names[start : start + MANY // 10]
        wanted = select(
            col(InteractionRow.interaction_id),
            col(InteractionRow.route),
            col(InteractionRow.key_id),
            col(InteractionRow.message_digests),
        ).where(col(InteractionRow.interaction_id).in_(some))
        rows = session.connection().execute(wanted).all()
        read = blobs_of(session, {digest for row in rows for digest in (*row[3][:1], *row[3][-TAIL:])})
        for name, route, key_id, digests in rows:
            first = read[digests[0]] if digests else None
            found[name] = named(route, key_id, first, [read[digest] for digest in digests[-TAIL:]])
    return found


def named(route: str, key_id: str, first: Message | None, tail: Sequence[Message]) -> tuple[str, ...]:
    """The slices of a turn with the prompt's first message and its last ones."""
    return (
        f"route: {route}",
        f"key: {key_id}",
        f"tool: {_tool(tail) or 'none'}",
        f"language: {_language(tail) or 'unknown'}",
        f"system prompt: {_system(first)}",
    )


def _tool(tail: Sequence[Message]) -> str | None:
    """The tool whose result the reply answers."""
    last = tail[-1] if tail else None
    if last is None or last.get("role") != "tool":
        return None
    for message in reversed(tail):
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping) and call.get("id") == last.get("tool_call_id"):
                function = call.get("function")
                return str(function.get("name")) if isinstance(function, Mapping) else None
    return str(last.get("name") or "unknown")


def _language(tail: Sequence[Message]) -> str | None:
    said = (language_of(text_of(message)) for message in reversed(tail) if message.get("role") == "user")
    return next((language for language in said if language is not None), None)


def _system(first: Message | None) -> str:
    """A system prompt by its beginning and a digest of the whole, because several may begin alike."""
    if first is None or first.get("role") not in ("system", "developer"):
        return "none"
    text = " ".join(text_of(first).split())
    head = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return f"{head} ({hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:4]})"
