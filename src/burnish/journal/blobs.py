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
_encode = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode


def text_of(value: Any) -> tuple[str, str]:
    """(digest, JSON text) of `value`."""
    body = _encode(value)
    return hashlib.sha256(body.encode()).hexdigest(), body


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
