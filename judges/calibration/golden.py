"""Golden sets: turns whose right verdict is known, one JSON object a line.

`messages` is the conversation, `reply` what was said (a message, or its text), `next_state` the messages that came back
(a text is one message), `from` whose they are ("user", "tool", or "feedback" for a comment left about the reply),
`score` the right verdict. `note`, and `turn`, the id of the recorded turn that the case was taken from, may be left
out. A case holds the conversation, not the prompt: it stays valid when the prompt changes.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
"""The sandbox language's; `python -m benchmarks.judging.golden` makes it again."""
SCORES = (1, 0, -1)
ORIGINS = ("user", "tool", "feedback")
_FIELDS = ("messages", "reply", "next_state", "from", "score", "note", "turn")
Origin = Literal["user", "tool", "feedback"]


class GoldenError(BurnishError):
    """A golden set cannot be read; the message names the line and what was expected there."""


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One turn and its right verdict: `score` is +1, 0 or -1."""

    messages: tuple[Message, ...]
    reply: Message
    next_state: tuple[Message, ...]
    origin: Origin
    score: int
    note: str = ""
    turn: str | None = None

    def to_line(self) -> str:
        """The case as one line, its end included."""
        told: dict[str, Any] = {
            "messages": list(self.messages),
            "reply": self.reply,
            "next_state": list(self.next_state),
            "from": self.origin,
            "score": self.score,
        }
        told |= {"note": self.note} if self.note else {}
        told |= {"turn": self.turn} if self.turn else {}
        return json.dumps(told, ensure_ascii=False) + "\n"


def question(case: GoldenCase, rubric: str = "") -> Case:
    """What the judge is asked about the case: as in production, rules go first."""
    if case.origin != "feedback" and (rule := prefilter.reason(case.messages, case.reply)) is not None:
        return Case([], rule)
    came_back = "\n".join(map(as_text, case.next_state)) if case.origin == "feedback" else case.next_state
    asked = verdict.question(case.messages, as_text(case.reply), came_back, case.origin)
    return ask(asked, NOBODYS if case.origin == "tool" else USERS, rubric)


def scored(case: GoldenCase, score: int) -> GoldenCase:
    """The case with this verdict as the right one."""
    return replace(case, score=score)


def load(path: Path) -> list[GoldenCase]:
    """The cases of the file. Raises GoldenError where there is none, or where a line is no case."""
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
    """Add one case; it is on the disk when this returns, and a last line without its end is ended first."""
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
        told = json.loads(line)
    except ValueError as error:
        raise ValueError(f"expected one JSON object, got {line[:80]!r} ({error})") from error
    if not isinstance(told, Mapping):
        raise ValueError(f"expected a JSON object with the fields {', '.join(_FIELDS[:5])}, got {line[:80]!r}")
    for name in _FIELDS[:5]:
        if name not in told:
            raise ValueError(f"the field {name!r} is missing; expected {', '.join(_FIELDS[:5])}")
    if unknown := [name for name in told if name not in _FIELDS]:
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    if told["from"] not in ORIGINS:
        raise ValueError(f"'from': expected one of {', '.join(ORIGINS)}, got {told['from']!r}")
    if told["score"] not in SCORES or not isinstance(told["score"], int) or isinstance(told["score"], bool):
        raise ValueError(f"'score': expected 1, 0 or -1, got {told['score']!r}")
    for name in ("note", "turn"):
        if not isinstance(told.get(name), str | None):
            raise ValueError(f"{name!r}: expected a text, got {told[name]!r}")
    role = "tool" if told["from"] == "tool" else "user"
    return GoldenCase(
        messages=_messages("messages", told["messages"], "user"),
        reply=_message("reply", told["reply"], "assistant"),
        next_state=_messages("next_state", told["next_state"], role),
        origin=told["from"],
        score=told["score"],
        note=told.get("note") or "",
        turn=told.get("turn"),
    )


def _messages(name: str, told: Any, role: str) -> tuple[Message, ...]:
    listed = [told] if isinstance(told, str) else told
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{name!r}: expected a list of messages, at least one, got {str(told)[:80]!r}")
    return tuple(_message(name, each, role) for each in listed)


def _message(name: str, told: Any, role: str) -> Message:
    """A text is a message of `role`."""
    if isinstance(told, str):
        return {"role": role, "content": told}
    if not isinstance(told, Mapping) or not isinstance(told.get("role"), str):
        raise ValueError(f"{name!r}: expected a text or a message with 'role' and 'content', got {str(told)[:80]!r}")
    return told
