"""Golden sets: turns with known right verdicts, one JSON object a line.

`messages` is the conversation, `reply` the agent's reply (a message, or its text), `next_state` the messages that came
back (a text is one message), `from` their source ("user", "tool", or "feedback" for a comment on the reply), `score`
the right verdict. Optional are `hint` (true if what came back says how the reply should have been, so that a judge
should write a hint; false if it does not), `note`, and `turn`, the id of the recorded turn of the case. A case holds
the conversation and not the prompt, so it stays valid when the prompt changes.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from burnish.errors import BurnishError
from burnish.judges import prefilter
from burnish.judges.verdicts import verdict
from burnish.judges.verdicts.case import Case, ask
from burnish.judges.verdicts.hint_rules import NOBODYS, USERS
from burnish.judges.verdicts.verdict import as_text
from burnish.records import Message

SHIPPED = Path(__file__).parent / "golden.sandbox.jsonl"
"""The sandbox language's golden set. `python -m benchmarks.judging.golden` makes it again."""
ENGLISH = Path(__file__).parent / "golden.english.jsonl"
"""Written and labelled case by case (docs/explanation/judging.md says by whom and when)."""
SCORES = (1, 0, -1)
ORIGINS = ("user", "tool", "feedback")
_FIELDS = ("messages", "reply", "next_state", "from", "score", "hint", "note", "turn")
Origin = Literal["user", "tool", "feedback"]


class GoldenError(BurnishError):
    """A golden set cannot be read. The message names the line and what was expected there."""


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One turn and its right verdict: `score` is +1, 0 or -1. `has_hint`: whether the right answer carries a hint, None
    if the set does not say.
    """

    messages: tuple[Message, ...]
    reply: Message
    next_state: tuple[Message, ...]
    origin: Origin
    score: int
    note: str = ""
    turn: str | None = None
    has_hint: bool | None = None

    def to_line(self) -> str:
        """The case as one line, with its line end."""
        given: dict[str, Any] = {
            "messages": list(self.messages),
            "reply": self.reply,
            "next_state": list(self.next_state),
            "from": self.origin,
            "score": self.score,
        }
        given |= {"hint": self.has_hint} if self.has_hint is not None else {}
        given |= {"note": self.note} if self.note else {}
        given |= {"turn": self.turn} if self.turn else {}
        return json.dumps(given, ensure_ascii=False) + "\n"


def question(case: GoldenCase, rubric: str = "") -> Case:
    """The judge's question about the case. As in production, rules go first."""
    if case.origin != "feedback" and (rule := prefilter.reason(case.messages, case.reply)) is not None:
        return Case([], rule)
    came_back = "\n".join(map(as_text, case.next_state)) if case.origin == "feedback" else case.next_state
    asked = verdict.question(case.messages, as_text(case.reply), came_back, case.origin)
    return ask(asked, NOBODYS if case.origin == "tool" else USERS, rubric)


def shipped(uses_sandbox: bool) -> Path:
    """The set that ships for the language of the served model."""
    return SHIPPED if uses_sandbox else ENGLISH


@cache
def digest(path: Path) -> str:
    """First 12 hex digits of the SHA-256 of a set. A judge is checked again when the set changes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def scored(case: GoldenCase, score: int) -> GoldenCase:
    """The case with this verdict as the right one."""
    return replace(case, score=score)


def load(path: Path) -> list[GoldenCase]:
    """The cases of the file. Raises GoldenError if there is no file, or if a line is not a case."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise GoldenError(
            f"there is no golden set at {path}; `burnish judges label --output {path}` makes one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenError(f"cannot read the golden set {path}: {error}") from error
    cases = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cases.append(_case(line))
        except ValueError as error:
            raise GoldenError(f"{path}, line {number}: {error}") from error
    if not cases:
        raise GoldenError(f"the golden set {path} is empty; `burnish judges label --output {path}` adds to it")
    return cases


def append(path: Path, case: GoldenCase) -> None:
    """Add one case. It is on the disk when this returns. A last line without a line end is ended first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        file.write(case.to_line().encode())
        file.flush()
        os.fsync(file.fileno())


def _case(line: str) -> GoldenCase:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise ValueError(f"expected one JSON object, got {line[:80]!r} ({error})") from error
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a JSON object with the fields {', '.join(_FIELDS[:5])}, got {line[:80]!r}")
    for name in _FIELDS[:5]:
        if name not in given:
            raise ValueError(f"the field {name!r} is missing; expected {', '.join(_FIELDS[:5])}")
    if unknown := [name for name in given if name not in _FIELDS]:
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    if given["from"] not in ORIGINS:
        raise ValueError(f"'from': expected one of {', '.join(ORIGINS)}, got {given['from']!r}")
    if given["score"] not in SCORES or not isinstance(given["score"], int) or isinstance(given["score"], bool):
        raise ValueError(f"'score': expected 1, 0 or -1, got {given['score']!r}")
    if not isinstance(given.get("hint"), bool | None):
        raise ValueError(f"'hint': expected true or false, got {given['hint']!r}")
    for name in ("note", "turn"):
        if not isinstance(given.get(name), str | None):
            raise ValueError(f"{name!r}: expected a text, got {given[name]!r}")
    role = "tool" if given["from"] == "tool" else "user"
    return GoldenCase(
        messages=_messages("messages", given["messages"], "user"),
        reply=_message("reply", given["reply"], "assistant"),
        next_state=_messages("next_state", given["next_state"], role),
        origin=given["from"],
        score=given["score"],
        note=given.get("note") or "",
        turn=given.get("turn"),
        has_hint=given.get("hint"),
    )


def _messages(name: str, given: Any, role: str) -> tuple[Message, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{name!r}: expected a list of messages, at least one, got {str(given)[:80]!r}")
    return tuple(_message(name, each, role) for each in listed)


def _message(name: str, given: Any, role: str) -> Message:
    """A list of messages. A text is one message of `role`."""
    if isinstance(given, str):
        return {"role": role, "content": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise ValueError(f"{name!r}: expected a text or a message with 'role' and 'content', got {str(given)[:80]!r}")
    return given
