"""Which long texts begin alike, so that a segment file holds what they have in common once.

An agent sends its tools and its whole conversation with every request. To write them anew each time costs more than all
else that a gateway does for such a request: the pages of a growing file have to be found, cleared and filled. What is
remembered here are checksums of each text's beginnings, one at every `STEP` bytes, of samples only: they say where to
look, and that two texts are alike is decided by their bytes alone.
"""

from typing import NamedTuple

from isal.isal_zlib import crc32

STEP = 16 * 1024
SAMPLE = 2048  # bytes at the end of every step
MOST = 32_768
Mark = tuple[int, int]


class Place(NamedTuple):
    """Where a text stands in a file, and how long it is, in bytes."""

    offset: int
    length: int


class Prefixes:
    """The texts of one file."""

    def __init__(self) -> None:
        self._places: dict[Mark, Place] = {}

    def find(self, marks: list[Mark]) -> Place | None:
        """The latest of the texts that begin, going by their checksums, most like the one with these `marks`."""
        for mark in reversed(marks):
            if (place := self._places.get(mark)) is not None:
                return place
        return None

    def add(self, marks: list[Mark], place: Place) -> None:
        """Remember a text; of very many the oldest are forgotten."""
        for mark in marks:
            self._places.pop(mark, None)
            self._places[mark] = place
        while len(self._places) > MOST:
            del self._places[next(iter(self._places))]


def marks_of(text: bytes) -> list[Mark]:
    """Length of, and checksum of samples from, every beginning of `text` that is a multiple of `STEP` long, shortest
    first."""
    marks = []
    view = memoryview(text)
    checksum = crc32(view[:SAMPLE])
    for end in range(STEP, len(text) + 1, STEP):
        checksum = crc32(view[end - SAMPLE : end], checksum)
        marks.append((end, checksum))
    return marks


def n_alike(text: bytes, other: bytes | memoryview) -> int:
    """How many bytes `text` and `other` have in common at their beginnings."""
    view = memoryview(other)
    low, high = 0, min(len(text), len(other))
    while low < high:  # the first `low` bytes are alike, the first `high` + 1 are not
        middle = (low + high + 1) // 2
        if text.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
