"""Texts with a common beginning, so that a segment file holds it once.

An agent sends its tools and its whole conversation with every request. Writing them again each time costs more than
everything else in the gateway, because the pages of a growing file must be found, cleared and filled. This file keeps
checksums of each text's beginnings, one at every `STEP` bytes, over samples only. They say where to look. The bytes
alone decide whether two texts are alike.
"""

from typing import NamedTuple

from isal.isal_zlib import crc32

STEP = 16 * 1024
SAMPLE = 2048  # bytes at the end of every step
MOST = 32_768
Mark = tuple[int, int]


class Place(NamedTuple):
    """The place and length, in bytes, of a text in a file."""

    offset: int
    length: int


class Prefixes:
    """The texts of one file."""

    def __init__(self) -> None:
        self._places: dict[Mark, Place] = {}

    def find(self, marks: list[Mark]) -> Place | None:
        """The latest text with the longest common beginning, by the checksums `marks`."""
        for mark in reversed(marks):
            if (place := self._places.get(mark)) is not None:
                return place
        return None

    def add(self, marks: list[Mark], place: Place) -> None:
        """Remember a text. If there are too many, the oldest are forgotten."""
        for mark in marks:
            self._places.pop(mark, None)
            self._places[mark] = place
        while len(self._places) > MOST:
            del self._places[next(iter(self._places))]


def marks_of(text: bytes) -> list[Mark]:
    """The length, and a checksum of samples, of every beginning of `text` at a multiple of `STEP`, shortest first."""
    marks = []
    view = memoryview(text)
    checksum = crc32(view[:SAMPLE])
    for end in range(STEP, len(text) + 1, STEP):
        checksum = crc32(view[end - SAMPLE : end], checksum)
        marks.append((end, checksum))
    return marks


def n_alike(text: bytes, other: bytes | memoryview) -> int:
    """How many bytes `text` and `other` share at their beginnings."""
    view = memoryview(other)
    low, high = 0, min(len(text), len(other))
    while low < high:  # the first `low` bytes are equal, the first `high` + 1 are not
        middle = (low + high + 1) // 2
        if text.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
