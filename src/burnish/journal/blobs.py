"""What repeats in requests, stored once under its SHA-256: messages, tool lists, parts of prompts.

A conversation sends its history with every request. So the prompts of its turns begin alike, and so do those of all
conversations with one system prompt. A prompt, as token ids, is cut into parts of equal length from its beginning. A
turn keeps the digests of its parts and the ids after the last whole one.

The first digits of a key are a time, so that new keys lie side by side in an index, and a long journal is not read all
over to file a turn. It is the day for long texts and parts, and 5 ms for short texts, which are stored again where
another conversation has them. System prompts and tool lists recur for longer, and have none.
"""

import hashlib
import json
import re
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlmodel import Session, col

from burnish.errors import JournalError
from burnish.journal.bulk import SKIP, insert_many
from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import BlobRow, InteractionRow, PromptPartRow
from burnish.records import IntArray

PART = 480
"""Ids in a part. Two parts with their digests fill a page of SQLite. The length of a stored prompt is counted with this
number (`n_ids`), so a change needs a migration.
"""
MANY = 5000
"""Most parameters of one statement. SQLite takes 32,766."""
N_DAY = 4
"""Hexadecimal digits of a key that are the day."""
N_TIME = 10
"""Those of the day and the time of the day. The digits behind them are always those of the digest."""
SHORT = 2000
"""Characters. Storing a shorter text twice costs less than changing a page of the index for each text."""
DAY = 86_400.0
N_BYTES = 4
"""Bytes of an id."""
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


def dated(digest: str, at: float) -> str:
    """`digest` with the day of `at`, in seconds since the epoch, as its first digits."""
    return f"{int(at / DAY) % 16**N_DAY:0{N_DAY}x}{digest[N_DAY:]}"


def timed(digest: str, at: float) -> str:
    """The same with the day and the time of the day."""
    return f"{int(at / DAY * 16 ** (N_TIME - N_DAY)) % 16**N_TIME:0{N_TIME}x}{digest[N_TIME:]}"


def key_of(value: Any, digest: str, at: float, *, is_short: bool = False) -> str:
    """The key of a message or a tool list that is stored at `at`."""
    recurs = not isinstance(value, Mapping) or value.get("role") in ("system", "developer")
    if recurs:
        return digest
    return timed(digest, at) if is_short else dated(digest, at)


def is_key_of(key: str, digest: str) -> bool:
    """True if `key` is `digest`, but for the time."""
    return key[N_TIME:] == digest[N_TIME:]


def store(session: Session, value: Any) -> str:
    """Store `value` unless it is stored already. Returns its key."""
    digest, body = text_of(value)
    key = key_of(value, digest, time.time())
    insert_or_skip(session, BlobRow, {"digest": key, "body": body})
    return key


def store_many(session: Session, bodies: Mapping[str, str]) -> None:
    """Store many texts, by their keys, unless they are stored already."""
    rows = [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
    insert_many(session, BlobRow, rows, SKIP)


def is_storable(text: str) -> bool:
    """True if a text column holds `text`."""
    return (text.isascii() and "\0" not in text) or _UNSTORABLE.search(text) is None


def storable(text: str) -> str:
    """`text` without characters that no text column holds: NUL, which PostgreSQL refuses, and half surrogate pairs."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class Parted:
    """A prompt in parts: the digest of each part, in order, the parts by their digests, and the rest."""

    digests: Sequence[str]
    parts: Mapping[str, bytes]
    rest: bytes

    @classmethod
    def of(cls, ids: IntArray) -> "Parted":
        data, size = ids.tobytes(), PART * N_BYTES
        ends = len(data) - len(data) % size
        parts = [data[at : at + size] for at in range(0, ends, size)]
        digests = [digest_of_part(part) for part in parts]
        return cls(digests, dict(zip(digests, parts, strict=True)), data[ends:])


def digest_of_part(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()[:40]


def store_parts(session: Session, parts: Mapping[str, bytes]) -> None:
    """Store parts by their keys, unless they are stored already."""
    rows = [{"digest": digest, "ids": part} for digest, part in sorted(parts.items())]
    insert_many(session, PromptPartRow, rows, SKIP)


def prompt_of(session: Session, row: InteractionRow) -> IntArray:
    """The prompt of one turn."""
    return prompts_of(session, [(row.prompt_parts, row.prompt_rest)])[0]


def prompts_of(session: Session, stored: Iterable[tuple[Sequence[str], bytes]]) -> list[IntArray]:
    """The prompts of turns, given as (`prompt_parts`, `prompt_rest`). Raises JournalError if a part is not there: the
    turn was erased at this moment, or the journal is damaged.
    """
    pairs = list(stored)
    wanted = list({digest for digests, _ in pairs for digest in digests})
    parts: dict[str, bytes] = {}
    for start in range(0, len(wanted), MANY):
        some = col(PromptPartRow.digest).in_(wanted[start : start + MANY])
        found = session.connection().execute(select(col(PromptPartRow.digest), col(PromptPartRow.ids)).where(some))
        parts |= {digest: ids for digest, ids in found}
    if n_missing := len(wanted) - len(parts):
        raise JournalError(f"{n_missing} parts of a turn's prompt are gone; `burnish journal check` names the turn")
    return [array("i", b"".join([*(parts[digest] for digest in digests), rest])) for digests, rest in pairs]


def n_ids() -> ColumnElement[int]:
    """The length of a turn's prompt, in ids, as SQL."""
    n_parts = func.json_array_length(col(InteractionRow.prompt_parts))
    return n_parts * PART + func.length(col(InteractionRow.prompt_rest)) // N_BYTES
