"""Which turn a request continues: decided by what its messages repeat, never by guessing.

Messages are compared by content, because clients re-send an assistant's message with fields added or dropped. A request
continues the recorded reply with which its longest known prefix ends. More than one open reply with the same prefix and
nothing to tell them apart means `ambiguous`: such a turn is served and kept, and never trained.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.records import Interaction, LinkRule, Message


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recorded reply that a request's prefix matches. `has_follower`: some request has continued it already."""

    interaction_id: str
    request_id: str
    session_id: str
    choice: int
    has_follower: bool
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Link:
    """The decision: the rule that fired and the reply that is continued, where there is one."""

    rule: LinkRule
    parent: Candidate | None


def scope_of(turn: Interaction) -> str:
    """What two turns must share to be one conversation: who asked whom. A quoted session or user narrows it."""
    return "\0".join([turn.tenant, turn.key_id, turn.agent, turn.user or "", turn.quoted_session or ""])


def prefix_hashes(scope: str, messages: Sequence[Message]) -> list[str]:
    """Rolling hashes: item k stands for the first k+1 messages in `scope`."""
    state = hashlib.sha256(scope.encode("utf-8", "surrogatepass")).digest()
    hashes = []
    for message in messages:
        state = hashlib.sha256(state + _essence(message)).digest()
        hashes.append(state.hex()[:40])
    return hashes


def tail_hash(turn: Interaction) -> str:
    """The hash that a request has at its assistant message when it continues `turn`."""
    return prefix_hashes(scope_of(turn), [*turn.messages, turn.reply])[-1]


def continuations(turn: Interaction) -> list[tuple[int, str]]:
    """Where `turn`'s request may continue a recorded reply: (index of the first message behind it, hash), longest first."""
    hashes = prefix_hashes(scope_of(turn), turn.messages)
    places = [(k + 1, hashes[k]) for k, message in enumerate(turn.messages) if message.get("role") == "assistant"]
    return places[::-1]


def choose(candidates: Sequence[Candidate], quoted_session: str | None) -> Link:
    """The link among the candidates of the longest matching prefix (possibly none)."""
    rule = LinkRule.HEADER if quoted_session else LinkRule.PREFIX
    if not candidates:
        return Link(LinkRule.HEADER if quoted_session else LinkRule.NEW, None)
    if len({c.request_id for c in candidates}) == 1:  # choices of one request that read the same
        return Link(rule, min(candidates, key=lambda c: c.choice))
    still_open = [c for c in candidates if not c.has_follower and not c.is_closed]
    if len(still_open) == 1:
        return Link(rule, still_open[0])
    return Link(LinkRule.AMBIGUOUS, None)


def _essence(message: Message) -> bytes:
    """What makes a message the same message: role, text and tool calls, with surrounding white space ignored."""
    calls = message.get("tool_calls") or []
    if isinstance(calls, list):
        calls = [_call(call) for call in calls]
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if isinstance(content, str):
        content = content.strip()
    essence = [message.get("role"), content or "", calls, message.get("tool_call_id"), message.get("name")]
    return json.dumps(essence, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _call(call: Any) -> Any:
    """A tool call's id, name and arguments; what has another shape stands for itself."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return [call.get("id"), function.get("name"), _arguments(function.get("arguments"))]


def _arguments(text: Any) -> Any:
    """What the text means: clients that decode and encode it write `{}` for nothing and, in JavaScript, `2` for `2.0`."""
    try:
        return json.loads(text or "{}", parse_float=_number) if isinstance(text, str) else text
    except ValueError:
        return text


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
