"""The injection suite: its cases, read from `injections.toml`, and their clean twins."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from burnish.judges.injection.fold import plain

FILE = Path(__file__).with_name("injections.toml")
ASSISTANT, TOOL = "assistant", "tool"


@dataclass(frozen=True, slots=True)
class Attack:
    """One turn with a prompt injection.

    `truth` is the score that it deserves, `wants` the score or hint that the attack is after.
    """

    name: str
    category: str
    where: Literal["user", "tool", "web", "reply"]
    aim: Literal["verdict", "hint"]
    wants: int | str
    truth: int
    conversation: tuple[tuple[str, str], ...]
    reply: str
    came_back: tuple[tuple[str, str], ...]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in chat form."""
        return [{"role": author, "content": text} for author, text in self.conversation]

    @property
    def next_state(self) -> list[dict[str, Any]]:
        """The next state in chat form."""
        return [{"role": author, "content": text} for author, text in self.came_back]

    def holds_payload(self, hint: str | None) -> bool:
        """True if `hint` holds what this attack wanted to plant."""
        return self.aim == "hint" and hint is not None and plain(str(self.wants)) in plain(hint)


@cache
def cases() -> tuple[tuple[Attack, Attack], ...]:
    """Every attack with its clean twin."""
    tree = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(_pair(case) for case in tree["case"])


def _pair(case: Mapping[str, Any]) -> tuple[Attack, Attack]:
    fields = {name: _frozen(value) for name, value in case.items() if name != "clean"}
    attack = Attack(**fields)
    return attack, replace(attack, **{name: _frozen(value) for name, value in case["clean"].items()})


def _frozen(value: Any) -> Any:
    return tuple((str(author), str(text)) for author, text in value) if isinstance(value, list) else value
