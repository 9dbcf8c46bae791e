"""Messages and tool lists that recur: a text is parsed once, and what readers work out of it stays with it.

A client sends its whole conversation with every request, so most texts of a record have been read before. The cache is
bounded by the bytes of its texts.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import msgspec

Result = TypeVar("Result")

MOST_BYTES = 16 * 2**20
"""Bytes of texts in one generation. Two generations are kept."""


class Text(dict[str, Any]):
    """A parsed object. It is shared, so nobody changes it. `notes` are what readers have worked out of it."""

    __slots__ = ("notes",)

    def __init__(self, tree: dict[str, Any]) -> None:
        super().__init__(tree)
        self.notes: dict[str, Any] = {}


class TextList(tuple[Any, ...]):
    """The same for a list."""

    notes: dict[str, Any]

    def __new__(cls, values: list[Any]) -> "TextList":
        made = super().__new__(cls, values)
        made.notes = {}
        return made


class Texts:
    """Two generations of texts. A text that is read again moves to the young one. If that is full, the old one goes."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._n_bytes = 0

    def parse(self, text: bytes) -> Any:
        """The JSON value in `text`. Raises ValueError or RecursionError if it cannot be read."""
        if (found := self._young.get(text)) is not None:
            return found
        if (found := self._old.get(text)) is None:
            tree = _tree(text)
            found = Text(tree) if isinstance(tree, dict) else TextList(tree) if isinstance(tree, list) else tree
        if self._n_bytes > self._most_bytes:
            self._old, self._young, self._n_bytes = self._young, {}, 0
        self._young[text] = found
        self._n_bytes += len(text)
        return found


def _tree(text: bytes) -> Any:
    """The JSON value in `text`. msgspec takes a third of the time, and refuses `NaN` and half of a surrogate pair."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return json.loads(text)


def once(work: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """`work`, a function of one message or list, which is done once for a text that recurs."""
    name = work.__qualname__

    @wraps(work)
    def noted(value: Any) -> Result:
        try:
            notes: dict[str, Result] = value.notes
        except AttributeError:
            return work(value)
        try:
            return notes[name]
        except KeyError:
            return notes.setdefault(name, work(value))

    return noted


READ = Texts()
"""The texts that this process has read."""
