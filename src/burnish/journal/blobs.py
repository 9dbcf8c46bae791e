"""Messages and tool lists, stored once: JSON text under the SHA-256 of that text."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from sqlmodel import Session

from burnish.journal.bulk import SKIP, insert_many
from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import BlobRow

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
quoted = json.encoder.encode_basestring_ascii
_encode = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode


def text_of(value: Any) -> tuple[str, str]:
    """(digest, JSON text) of `value`."""
    body = _encode(value) if (words := _words_of(value)) is None else f'{{"content":{words[0]},"role":{words[1]}}}'
    return hashlib.sha256(body.encode()).hexdigest(), body


def _words_of(value: Any) -> tuple[str, str] | None:
    """(content, role) of a message that has nothing else, as JSON text. Most have, and need no encoder."""
    if not isinstance(value, Mapping) or len(value) != 2:
        return None
    content, role = value.get("content"), value.get("role")
    return (quoted(content), quoted(role)) if isinstance(content, str) and isinstance(role, str) else None


def store(session: Session, value: Any) -> str:
    """Store `value` unless it is stored already. Returns its digest."""
    digest, body = text_of(value)
    insert_or_skip(session, BlobRow, {"digest": digest, "body": body})
    return digest


def store_many(session: Session, bodies: Mapping[str, str]) -> None:
    """Store many texts, by their digests, unless they are stored already."""
    rows = [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
    insert_many(session, BlobRow, rows, SKIP)


def is_storable(text: str) -> bool:
    """True if a text column holds `text`."""
    return (text.isascii() and "\0" not in text) or _UNSTORABLE.search(text) is None


def storable(text: str) -> str:
    """`text` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate pairs."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
