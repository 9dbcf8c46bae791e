"""A prompt's ids in an engine's answer. A conversation's prompts begin alike, so a part that was read before is copied.

Reading 1,700 ids takes 40 µs as a list of numbers, and 15 µs where most were read before.
"""

from array import array

import msgspec

from burnish.records import IntArray, int_array
from burnish.wire.recurring import Recurring

PART = 2048
"""Bytes of a part at least. It ends at the next comma, so prompts that begin alike have the same first parts."""
_decoder = msgspec.json.Decoder(list[int])


def ids_in(text: bytes) -> IntArray:
    """The ids in a JSON list; none for no text and for `null`. Raises msgspec.DecodeError if it is no list of integers,
    and OverflowError if one does not fit into 32 bits.
    """
    ids: IntArray = array("i")
    if text in (b"", b"null"):
        return ids
    at, end = 1 if text.startswith(b"[") else 0, len(text) - 1
    while at and (comma := text.find(b",", at + PART, end)) > 0:
        ids += _PARTS.of(text[at:comma])
        at = comma + 1
    ids += int_array(_decoder.decode(b"[" + text[at:] if at else text))
    return ids


def n_ids_in(text: bytes) -> int:
    """How many ids there are, without reading them."""
    inner = text[1:-1].strip() if text.startswith(b"[") else b""
    return inner.count(b",") + 1 if inner else 0


def _read_part(part: bytes) -> IntArray:
    return int_array(_decoder.decode(b"[%b]" % part))


_PARTS: Recurring[IntArray] = Recurring(_read_part)
