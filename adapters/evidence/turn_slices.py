"""The slices of recorded turns: route, key, tool, language, system prompt.

Only what was known before the reply counts. Otherwise a version could move turns from one slice into another.
An operator who wants slices of his own gives each application a key of its own. A name holds no words of anybody,
because it stays in the evidence when a turn is erased. `with_heads` adds the beginning of a system prompt that is still
in the journal.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.languages import language_of
from burnish.journal.blobs import MANY
from burnish.journal.tables import BlobRow, InteractionRow
from burnish.journal.turns import blobs_of
from burnish.messages import text_of
from burnish.records import Message

TAIL = 6
"""Messages at a prompt's end that are read."""
SHOWN = 60
"""Characters of a system prompt that are shown."""
SYSTEM = "system prompt: "
DIGITS = 12
"""Hexadecimal digits of a system prompt's digest that name its slice."""


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
            is_system = first is not None and first.get("role") in ("system", "developer")
            system = digests[0][:DIGITS] if is_system else "none"
            found[name] = named(route, key_id, system, [read[digest] for digest in digests[-TAIL:]])
    return found


def with_heads(session: Session, slices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The slices with a `head`: how the system prompt begins, None for another slice or if nobody uses it any more."""
    return [{**each, "head": _head(session, str(each["slice"]))} for each in slices]


def _head(session: Session, name: str) -> str | None:
    digest = name.removeprefix(SYSTEM)
    if digest == name or digest == "none":
        return None
    wanted = select(col(BlobRow.digest)).where(col(BlobRow.digest) >= digest, col(BlobRow.digest) < digest + "g")
    whole = session.scalars(wanted.limit(1)).first()
    text = " ".join(text_of(blobs_of(session, [whole])[whole]).split()) if whole is not None else ""
    return None if not text else text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def named(route: str, key_id: str, system: str, tail: Sequence[Message]) -> tuple[str, ...]:
    """The slices of a turn with the prompt's last messages. `system` names its system prompt."""
    return (
        f"route: {route}",
        f"key: {key_id}",
        f"tool: {_tool(tail) or 'none'}",
        f"language: {_language(tail) or 'unknown'}",
        f"{SYSTEM}{system}",
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
