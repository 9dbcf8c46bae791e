"""Messages and tool lists, stored once: JSON text under the SHA-256 of that text."""

import hashlib
import json
import re
from typing import Any

from sqlmodel import Session

from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import BlobRow

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def text_of(value: Any) -> tuple[str, str]:
    """(digest, JSON text) of `value`."""
    body = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest(), body


def store(session: Session, value: Any) -> str:
    """Store `value` unless it is stored already. Returns its digest."""
    digest, body = text_of(value)
    insert_or_skip(session, BlobRow, {"digest": digest, "body": body})
    return digest


def storable(text: str) -> str:
    """`text` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate pairs."""
    return _UNSTORABLE.sub("\ufffd", text)
