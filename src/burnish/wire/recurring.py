"""Texts that recur: each is read once.

A client sends its whole conversation with every request, so most parts of a record have been read before.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")
MOST_BYTES = 16 * 2**20
"""Bytes of texts in one generation. Two generations are kept."""


class Recurring(Generic[Result]):
    """What `read` makes of a text, in two generations, bounded by the bytes of their texts. A text that is read again
    moves to the young one. If that is full, the old one goes. The results are shared, so nobody changes them.
    """

    def __init__(self, read: Callable[[bytes], Result], most_bytes: int = MOST_BYTES) -> None:
        self._read = read
        self._most_bytes = most_bytes
        self._young: dict[bytes, Result] = {}
        self._old: dict[bytes, Result] = {}
        self._n_bytes = 0

    def of(self, text: bytes) -> Result:
        """What `read` makes of `text`. Raises what `read` raises."""
        if (found := self._young.get(text)) is not None:
            return found
        if (found := self._old.get(text)) is None:
            found = self._read(text)
        if self._n_bytes > self._most_bytes:
            self._old, self._young, self._n_bytes = self._young, {}, 0
        self._young[text] = found
        self._n_bytes += len(text)
        return found
