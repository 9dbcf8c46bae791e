"""Which turn a request continues. The repeated messages decide; nothing is guessed.

Messages are compared by content, because clients re-send an assistant's message with fields added or dropped. A request
continues the recorded reply with which its longest known prefix ends. A harness may have changed the history before
that reply (compacted it, cut old tool results, put the time into the system prompt). Then the last repeated reply is
looked up by what identifies it: the ids of its tool calls, or its words and the user's message before them.

If more than one open reply fits and nothing distinguishes them, the turn is `ambiguous`: it is served and kept, and
never trained on.

Clients write all of this text, so the time of every function here grows with its length and no faster
(tests/server/ingest/test_ingest_cost.py).
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from burnish.adapters.registry.personal import family_of
from burnish.journal.blobs import quoted
from burnish.records import Interaction, LinkRule, Message
from burnish.segments.texts import once

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode
_CALLS_IN_TEXT = re.compile(r"Calling tools:\s*\[\{")
_TOKEN = re.compile(r"\w+|\W")
_CALL_ID_OPENING = "chatcmpl-tool-"
_CALL_ID = re.compile(rf"\b{_CALL_ID_OPENING}[0-9a-f]{{16,32}}\b")
LONG_REPLY = 40
"""A reply and the message before it identify a turn if they have this many characters. Shorter ones need the opening
too.
"""
LONGEST_COMPARED = 100_000
"""Characters of a reply that are compared with its changed form."""
MOST_PLACES = 256
"""Repeated replies of one request that are looked up, latest first. Each costs a query under the journal's write lock.
"""
MANY_WORDS = 80
"""A reply of this many characters identifies itself, if nobody else got the same."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recorded reply that a request repeats. `has_follower`: another request has continued it already."""

    interaction_id: str
    request_id: str
    session_id: str
    choice: int
    has_follower: bool
    is_closed: bool
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """The decision: the rule that matched and the continued reply, if there is one.

    `start` is the index of the first message after that reply.
    """

    rule: LinkRule
    parent: Candidate | None
    start: int = 0


def scope_of(turn: Interaction) -> str:
    """What two turns must share to be one conversation: the asker and the agent. A quoted session or user narrows
    it."""
    named = "\0".join(dict.fromkeys(name for name in (turn.user, turn.quoted_user) if name))
    return "\0".join([turn.tenant, turn.key_id, family_of(turn.agent), named, turn.quoted_session or ""])


def prefix_hashes(scope: str, messages: Sequence[Message]) -> list[str]:
    """Rolling hashes: item k is the hash of the first k+1 messages in `scope`."""
    state = hashlib.sha256(scope.encode("utf-8", "surrogatepass")).digest()
    hashes = []
    for message in messages:
        notes = getattr(message, "notes", None)
        noted = notes.get(_HASHED) if notes is not None else None
        if noted is None or noted.before != state:
            after = hashlib.sha256(state + _essence(message)).digest()
            noted = _Hashed(state, after, after[:20].hex())
            if notes is not None:
                notes[_HASHED] = noted
        state = noted.after
        hashes.append(noted.shown)
    return hashes


class _Hashed(NamedTuple):
    """The states of the rolling hash before and after a message, as it was last. Its conversation repeats it there."""

    before: bytes
    after: bytes
    shown: str


_HASHED = "hashed"


class Trace:
    """The hashes of one turn, all computed here: of its request, of its reply, and of the places where it may continue
    another.
    """

    def __init__(self, turn: Interaction) -> None:
        self._scope = scope_of(turn)
        self._seed = self._scope.encode("utf-8", "surrogatepass")
        self._messages = turn.messages
        self._reply = turn.reply
        self._hashes = prefix_hashes(self._scope, [*turn.messages, turn.reply])
        repeated = [k for k, message in enumerate(turn.messages) if message.get("role") == "assistant"]
        self._repeated = repeated[: -MOST_PLACES - 1 : -1]
        as_repeated = _with_stop(turn.reply, turn.stop)
        self._own = self._suffix(turn.messages, as_repeated), self._words(as_repeated)
        self._continuations = [(k + 1, self._hashes[k]) for k in self._repeated]
        self._changed = None
        if self._repeated:
            last = self._repeated[0]
            self._changed = last + 1, self._suffix(turn.messages[:last], turn.messages[last])

    @property
    def request(self) -> str:
        """The hash of the whole request. Two tries of one request share it."""
        return self._hashes[-2] if len(self._hashes) > 1 else hashlib.sha256(self._seed).hexdigest()[:40]

    @property
    def tail(self) -> str:
        """The hash that a request has at its assistant message if it continues this turn."""
        return self._hashes[-1]

    @property
    def suffix(self) -> str:
        """The hash by which this turn is recognised if the history before it has been changed."""
        return self._own[0]

    @property
    def words(self) -> str:
        """The hash by which this turn is recognised if even the user's message was changed: the reply's own words.

        Empty if they are too few.
        """
        return self._own[1]

    def hash_at(self, start: int) -> str:
        """The hash of the first `start` messages."""
        return self._hashes[start - 1]

    def repeated_words(self) -> Sequence[tuple[int, str]]:
        """The same for the last assistant messages of the request, last first. Few requests need it."""
        return [(k + 1, words) for k in self._repeated if (words := self._words(self._messages[k]))]

    def continuations(self) -> Sequence[tuple[int, str]]:
        """The places where the request may continue a reply: (index of the first message after it, hash), longest
        first.
        """
        return self._continuations

    def changed_continuation(self) -> tuple[int, str] | None:
        """The same for the last assistant message by its suffix. None if the request repeats no reply."""
        return self._changed

    def edited_continuation(self) -> tuple[int, str, Message] | None:
        """The last assistant message as it reads now, with the hash of the request that it answers. Somebody may have
        edited it.
        """
        if not self._repeated or not (last := self._repeated[0]):
            return None
        return last + 1, self._hashes[last - 1], self._messages[last]

    def _words(self, reply: Message) -> str:
        if _n_characters(reply) < MANY_WORDS:
            return ""
        return hashlib.sha256(self._seed + b"words" + _essence(reply)).hexdigest()[:40]

    def _suffix(self, before: Sequence[Message], reply: Message) -> str:
        if call_ids := _call_ids(reply):
            parts = [_CALLS, hashlib.sha256(json.dumps(sorted(call_ids)).encode()).digest()]
        else:
            # not tools' results, because harnesses cut those first
            last = next((m for m in reversed(before) if m.get("role") == "user"), None)
            said = [reply, *([] if last is None else [last])]
            if _n_characters(reply) < LONG_REPLY and last is not None:
                said.append(next(m for m in before if m.get("role") == "user"))
            parts = [_WORDS, *map(_digest, said)]
        digest = hashlib.sha256(self._seed + b"".join(parts))
        return digest.hexdigest()[:40]


_CALLS, _WORDS = (hashlib.sha256(kind).digest() for kind in (b"calls", b"words"))


def _with_stop(reply: Message, stop: str | None) -> Message:
    """The reply as it is repeated by harnesses that put the stop string back."""
    text = reply.get("content")
    return {**reply, "content": text + stop} if stop and isinstance(text, str) else reply


def choose(candidates: Sequence[Candidate], rule: LinkRule, start: int = 0) -> Link:
    """The link among the candidates for one place in the request. There is at least one candidate."""
    if len({c.request_id for c in candidates}) == 1:  # choices of one request with the same text
        return Link(rule, min(candidates, key=lambda c: c.choice), start)
    still_open = [c for c in candidates if not c.has_follower and not c.is_closed]
    if len(still_open) == 1:
        return Link(rule, still_open[0], start)
    if (
        still_open and len({c.session_id for c in still_open}) == 1
    ):  # asked again and answered alike: the client shows the last
        return Link(rule, max(still_open, key=lambda c: (c.ended_at, -c.choice)), start)
    return Link(LinkRule.AMBIGUOUS, None)


def is_same(one: Message, other: Message) -> bool:
    """True if two messages are the same one, however they are written."""
    return _essence(one) == _essence(other)


def likeness(reply: Message, repeated: Message) -> float:
    """How much of a reply's text is left in its repetition, in [0, 1]: the share of both texts that is their common
    beginning, their common end, and the words between that both have, in any order.
    """
    was, now = (_text(message)[:LONGEST_COMPARED] for message in (reply, repeated))
    if was == now:
        return 1.0
    n_first = _n_alike(was, now)
    n_last = _n_alike(was[n_first:][::-1], now[n_first:][::-1])
    between = [Counter(_TOKEN.findall(text[n_first : len(text) - n_last])) for text in (was, now)]
    n_shared = sum(len(token) * count for token, count in (between[0] & between[1]).items())
    return 2.0 * (n_first + n_shared + n_last) / (len(was) + len(now))


def _n_alike(one: str, other: str) -> int:
    """How many characters `one` and `other` share at their beginnings."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@once
def _essence(message: Message) -> bytes:
    """What identifies a message: role, text and tool calls. Surrounding white space does not count."""
    role, content = message.get("role"), message.get("content")
    if len(message) == 2 and isinstance(role, str) and isinstance(content, str):  # as most are
        return f"[{quoted(role)},{quoted(_content(message))},[],null,null]".encode()
    calls = message.get("tool_calls") or []
    if isinstance(calls, list):
        calls = [_call(call) for call in calls]
    content = _content(message)
    essence = [role, content or "", calls, message.get("tool_call_id"), message.get("name")]
    return _encode(essence).encode()


def _content(message: Message) -> Any:
    content = _joined(message)
    if not isinstance(content, str):
        return content
    if (
        message.get("role") == "assistant" and "Calling tools:" in content
    ):  # smolagents, after the reply that it repeats
        content = _without_calls(content)
    return content.strip()


def _without_calls(text: str) -> str:
    """`text` without the tool calls, written as a list of objects, that end it."""
    found = _CALLS_IN_TEXT.search(text)
    return text[: found.start()] if found and text.rstrip().endswith("}]") else text


def _joined(message: Message) -> Any:
    """The content with its text parts joined. Other shapes stay as they are."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    return content


def _text(message: Message) -> str:
    content = _content(message)
    return content if isinstance(content, str) else ""


@once
def _digest(message: Message) -> bytes:
    return hashlib.sha256(_essence(message)).digest()


@once
def _n_characters(message: Message) -> int:
    return len(_text(message))


@once
def _call_ids(message: Message) -> list[str]:
    """The ids of a message's tool calls. Some harnesses write the calls into the text when they repeat a reply."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        text = _joined(message)
        if not isinstance(text, str) or _CALL_ID_OPENING not in text:
            return []
        return list(dict.fromkeys(_CALL_ID.findall(text)))
    return [
        call["id"] for call in calls if isinstance(call, Mapping) and isinstance(call.get("id"), str) and call["id"]
    ]


def _call(call: Any) -> Any:
    """A tool call's id, name and arguments. Other shapes stay as they are."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return [call.get("id"), function.get("name"), _arguments(function.get("arguments"))]


def _arguments(text: Any) -> Any:
    """The meaning of the JSON text: clients that decode and encode it write `{}` for nothing and, in JavaScript, `2`
    for `2.0`.
    """
    try:
        return json.loads(text or "{}", parse_float=_number) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
