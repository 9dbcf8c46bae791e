"""The verdict prompt and the parser of its answer, side by side.

A judge's failure is never the policy's fault: an answer that cannot be parsed raises `UnreadableVerdict` with its text.
It is never turned into a score.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.judges.verdicts.question import Question, QuotedMessage

PROMPT = "verdict"
# No further choice may follow the verdict: "+1, 0, -1 or abstain" is the prompt's own line echoed, and 0.5 or 1/10
# another scale.
_ANSWER = re.compile(
    r"VERDICT:[ \t]*(?P<verdict>\+1|-1|0|1|abstain)\b(?!\.\d|[ \t]*(?:[,/|]|or\b))[ \t.]*"
    r"(?:\r?\n[ \t]*HINT:[ \t]*(?P<hint>[^\r\n]*))?",
    re.IGNORECASE,
)
_SCORES = {"+1": 1, "1": 1, "0": 0, "-1": -1, "abstain": None}
ANSWER_FORM = r"VERDICT: (\+1|0|-1|abstain)\nHINT: [^\r\n]+"
"""Exactly what the prompt asks for, as a regular expression, for engines with structured output."""
ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["+1", "0", "-1", "abstain"]}, "hint": {"type": ["string", "null"]}},
    "required": ["verdict", "hint"],
    "additionalProperties": False,
}
"""The same as JSON, for providers that accept a schema."""


class UnreadableVerdict(ValueError):
    """The judge's answer does not have the form that the prompt asks for. The message quotes it."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One judge's answer: `score` is +1, 0, -1, or None for an abstention. `hint` is None if it wrote none."""

    score: int | None
    hint: str | None


def question(
    conversation: Sequence[Mapping[str, Any]],
    reply: str,
    next_state: str | Sequence[Mapping[str, Any]],
    origin: str,
    *,
    last_messages: int = 6,
    clip_chars: int = 4000,
) -> Question:
    """The question about `reply`.

    The conversation's last `last_messages` messages are included, each one clipped in the middle to `clip_chars`
    characters. The next state is one text by `origin` ("user", "tool" or "feedback"), or messages with roles of their
    own.
    """

    def shown(author: str, text: str) -> QuotedMessage:
        return QuotedMessage(author, _clip(text, clip_chars))

    came_back = (
        [(origin, next_state)] if isinstance(next_state, str) else [(_role(m, origin), as_text(m)) for m in next_state]
    )
    return Question(
        tuple(shown(_role(message, "?"), as_text(message)) for message in conversation[-last_messages:]),
        shown("assistant", reply),
        tuple(shown(*each) for each in came_back),
    )


def verdict_messages(
    conversation: Sequence[Mapping[str, Any]],
    reply: str,
    next_state: str | Sequence[Mapping[str, Any]],
    origin: str,
    *,
    last_messages: int = 6,
    clip_chars: int = 4000,
    nonce: str | None = None,
) -> list[dict[str, str]]:
    """The chat messages that ask for a verdict on `reply`. Arguments as for `question`, `nonce` as for
    `Question.messages`.
    """
    asked = question(conversation, reply, next_state, origin, last_messages=last_messages, clip_chars=clip_chars)
    return asked.messages(PROMPT, nonce=nonce)


def parse_vote(answer: str) -> Vote:
    """Parse one answer, two lines or JSON. Raises UnreadableVerdict, with the text, if it holds no verdict."""
    if answer.lstrip().startswith("{"):
        return _parse_json(answer)
    found = _ANSWER.search(answer)
    if found is None:
        raise UnreadableVerdict(f"expected a line 'VERDICT: +1, 0, -1 or abstain', got {answer[:200]!r}")
    return Vote(_SCORES[found["verdict"].lower()], _hint(found["hint"]))


def _parse_json(answer: str) -> Vote:
    """Parse an object of ANSWER_SCHEMA. Text that begins as JSON is never searched for a verdict line, because its hint
    may quote one.
    """
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise UnreadableVerdict(f"expected JSON with 'verdict' and 'hint', got {answer[:200]!r}: {error}") from error
    verdict, hint = parsed.get("verdict"), parsed.get("hint")
    is_number = isinstance(verdict, int) and not isinstance(verdict, bool)
    score = str(verdict).lower() if is_number or isinstance(verdict, str) else ""
    if score not in _SCORES or not isinstance(hint, str | None):
        raise UnreadableVerdict(
            f"expected a 'verdict' of +1, 0, -1 or abstain and a 'hint' in words, got {answer[:200]!r}"
        )
    return Vote(_SCORES[score], _hint(" ".join((hint or "").split())))


def _hint(text: str | None) -> str | None:
    hint = (text or "").strip()
    return None if hint.lower().rstrip(".") in {"", "none"} else hint


def as_text(message: Mapping[str, Any]) -> str:
    """A message as the judge reads it: text parts joined, tool calls as `name(arguments)`."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(map(_part, content))
    calls = message.get("tool_calls") or []
    shown = [_call(call) for call in calls] if isinstance(calls, list) else [str(calls)]
    return "\n".join([part for part in [str(content), *shown] if part])


def _role(message: Mapping[str, Any], otherwise: str) -> str:
    return str(message.get("role") or otherwise)


def _part(part: Any) -> str:
    return str(part.get("text", f"[{part.get('type', 'part')}]")) if isinstance(part, Mapping) else str(part)


def _call(call: Any) -> str:
    """`name(arguments)`. A client's call of another shape is kept as it is."""
    function = call.get("function") if isinstance(call, Mapping) else None
    return f"{function.get('name')}({function.get('arguments')})" if isinstance(function, Mapping) else str(call)


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"
