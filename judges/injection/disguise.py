"""Disguised text: letters set apart, words reversed, and common encodings.

Each disguise comes with its span in the original, so that prompt injection inside it can be cut out whole.
"""

import base64
import binascii
import codecs
import html
import re
import urllib.parse
from collections.abc import Iterator
from itertools import islice

MAX_COVERS = 64
"""Spans of one kind in one text. The cap bounds the cost of a text with thousands of codes."""
_SPACED = re.compile(r"(?<!\w)\w(?:[\s.\-_*·•|/~,]{1,3}\w(?!\w)){3,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{11,}={0,2}")
_HEX = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s:,]?){8,}")
_BINARY = re.compile(r"(?:[01]{8}\s?){6,}")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2}[\w+.-]{0,16}){3,}")
_ENTITIES = re.compile(r"(?:&#x?[0-9a-fA-F]{2,6};\s?){4,}")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4}){4,}")
_TAGS = re.compile(r"[\U000e0020-\U000e007e]{6,}")
_NOT_LETTERS = re.compile(r"[\W_]+")


def covers(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, decoded text) of every stretch of `text` that can be read in another way."""
    for found in islice(_TAGS.finditer(text), MAX_COVERS):
        yield *found.span(), "".join(chr(ord(char) - 0xE0000) for char in found[0])
    for pattern, decode in _CODES:
        for found in islice(pattern.finditer(text), MAX_COVERS):
            decoded = decode(found[0])
            if decoded and decoded != found[0] and _is_text(decoded):
                yield *found.span(), decoded


def spaced(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, letters) of every run of single letters with something between them: "v e r d i c t"."""
    for found in islice(_SPACED.finditer(text), MAX_COVERS):
        yield *found.span(), _NOT_LETTERS.sub("", found[0])


def turned(text: str) -> tuple[str, str]:
    """The text backwards, and by rot13."""
    return text[::-1], codecs.encode(text, "rot13")


def _base64(text: str) -> str:
    padded = text.rstrip("=").replace("-", "+").replace("_", "/")
    padded += "=" * (-len(padded) % 4)
    try:
        return base64.b64decode(padded, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _hex(text: str) -> str:
    try:
        return bytes.fromhex(re.sub(r"0x|\\x|[\s:,]", "", text)).decode()
    except ValueError:
        return ""


def _binary(text: str) -> str:
    bits = re.sub(r"\s", "", text)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8)).decode("latin-1")


def _escapes(text: str) -> str:
    return "".join(chr(int(unit, 16)) for unit in text.split("\\u") if unit)


_CODES = (
    (_BASE64, _base64),
    (_HEX, _hex),
    (_BINARY, _binary),
    (_PERCENT, urllib.parse.unquote_plus),
    (_ENTITIES, html.unescape),
    (_ESCAPES, _escapes),
)


def _is_text(decoded: str) -> bool:
    return sum(char.isprintable() or char.isspace() for char in decoded) >= 0.9 * len(decoded)
