"""A custom tool's free text. The engine carries it as a function's one argument `input`; it is extracted as it
streams."""

import json
import re
from enum import Enum, auto

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_UNIT = re.compile(
    r'[^"\\]+'
    r'|\\["\\/bfnrt]'
    # a character outside the basic plane takes two escapes
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
)
_LONGEST_UNIT = 12
_LATEST_OPENING = 256
"""Characters without the opening after which it is not looked for any more. Each look reads them all again."""
PARAMETERS = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def arguments_of(text: str) -> str:
    """The function's arguments that represent `text`."""
    return json.dumps({"input": text}, ensure_ascii=False)


class _Stage(Enum):
    BEFORE = auto()
    INSIDE = auto()
    BEHIND = auto()


class Freeform:
    """Extracts the tool's text from pieces of a call's arguments.

    If the model writes other JSON than it was asked for, or none, the text is what the model wrote. It is given at the
    end.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._late: list[str] = []
        self._stage = _Stage.BEFORE

    def feed(self, piece: str) -> str:
        """The text that `piece` adds."""
        if self._stage is _Stage.BEHIND:
            return ""
        if self._stage is _Stage.BEFORE and len(self._rest) > _LATEST_OPENING:
            self._late.append(piece)  # a long string that grows piece by piece is copied each time
            return ""
        self._rest += piece
        if self._stage is _Stage.BEFORE and (opening := _OPENING.match(self._rest)):
            self._rest = self._rest[opening.end() :]
            self._stage = _Stage.INSIDE
        return self._unescape(is_last=False) if self._stage is _Stage.INSIDE else ""

    def end(self) -> str:
        """The text that was held back."""
        if self._stage is _Stage.INSIDE:
            return self._unescape(is_last=True)
        return _text_of(self._rest + "".join(self._late)) if self._stage is _Stage.BEFORE else ""

    def _unescape(self, *, is_last: bool) -> str:
        """The longest complete part of the rest. A broken escape is kept as it is."""
        out: list[str] = []
        at = 0
        while at < len(self._rest):
            if unit := _UNIT.match(self._rest, at):
                out.append(_plain(unit[0]))
                at = unit.end()
            elif self._rest[at] == '"':
                self._stage = _Stage.BEHIND
                at = len(self._rest)
            elif is_last or len(self._rest) - at >= _LONGEST_UNIT:
                out.append("\\")
                at += 1
            else:
                break
        self._rest = self._rest[at:]
        return "".join(out)


def _plain(unit: str) -> str:
    text: str = json.loads(f'"{unit}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text_of(arguments: str) -> str:
    try:
        tree = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = tree.get("input") if isinstance(tree, dict) else None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else arguments
