"""Messages and tool lists that recur: a text is parsed once, and what readers work out of it stays with it."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import msgspec

from burnish.wire.recurring import Recurring

Result = TypeVar("Result")


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


def _tree(text: bytes) -> Any:
    """The JSON value in `text`. msgspec takes a third of the time, and refuses `NaN` and half of a surrogate pair."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return json.loads(text)


def _shared(text: bytes) -> Any:
    tree = _tree(text)
    return Text(tree) if isinstance(tree, dict) else TextList(tree) if isinstance(tree, list) else tree


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


READ: Recurring[Any] = Recurring(_shared)
"""The texts that this process has read. Raises ValueError or RecursionError if one is no JSON."""
