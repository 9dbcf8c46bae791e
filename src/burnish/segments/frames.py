"""Frames: the form of one record in a segment file.

A frame is `magic, payload length, CRC-32` and the payload: the lengths of its parts, a JSON head, then the token arrays
in binary. If a reply came whole, the engine's answer follows unchanged in their place. Its reader parses it: in the
gateway, where a client waits, a long prompt's ids would cost more than everything else.

The head begins with tools and messages, which a conversation's requests share (src/burnish/segments/file.py writes them
once).
"""

import json
import struct
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgspec
from isal.isal_zlib import crc32

from burnish.records import Feedback, FeedbackSource, Interaction, Sampling, TargetKind
from burnish.segments.texts import READ, Text
from burnish.wire import chunks
from burnish.wire.draft import ABORTED, Draft

MAGIC = b"BRN1"
HEADER = struct.Struct("<4sII")
COUNTS = struct.Struct("<IIII")
Record = Interaction | Feedback


def ended_at(record: Record) -> float:
    """When the reply was complete, or the feedback given."""
    return record.ended_at if isinstance(record, Interaction) else record.created_at


class Begun:
    """The part of an interaction's record that is known before the engine answers, as JSON text.

    Messages and tools may be JSON text (msgspec.Raw), so that a long conversation is not parsed and encoded again.
    """

    __slots__ = ("text",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        assert fields.keys() == _BEGUN, f"expected {sorted(_BEGUN)}"
        self.text = _to_json({"kind": "interaction", "tools": (), "messages": (), **fields})[:-1]

    def finished(self, rest: Mapping[str, Any], *arrays: "array[Any]") -> list[bytes]:
        """The frame in pieces: the parts of the answer, and the arrays of prompt ids, token ids and log-probs."""
        assert rest.keys() - {"remark"} == _RESULT, f"expected {sorted(_RESULT)}"
        return _frame(
            [self.text, b",", _to_json(rest)[1:]], [len(values) for values in arrays], [a.tobytes() for a in arrays]
        )

    def answered(self, interaction_id: str, ended_at: float, answer: bytes) -> list[bytes]:
        """The frame, in pieces, of a whole reply with one choice, with the engine's `answer` unchanged."""
        rest = b',"interaction_id":%b,"ended_at":%b,"has_answer":true}' % (_encode(interaction_id), _encode(ended_at))
        return _frame([self.text, rest], (0, 0, 0), [answer])


def encode(record: Record) -> bytes:
    """One frame as one text of bytes."""
    return b"".join(pieces(record))


def pieces(record: Record) -> list[bytes]:
    """One frame in the pieces that are written."""
    if isinstance(record, Feedback):
        tree = asdict(record) | {"kind": "feedback"}
        if record.deleted_by is None:  # the release before does not know it
            del tree["deleted_by"]
        return _frame([_to_json(tree)], (0, 0, 0), ())
    begun = Begun({name: getattr(record, name) for name in _BEGUN})
    rest = {name: getattr(record, name) for name in _RESULT}
    if record.remark is not None:
        rest["remark"] = record.remark
    return begun.finished(rest, record.prompt_ids, record.token_ids, record.logprobs)


def decode(payload: bytes, *, remembers: bool = True) -> Record:
    """The record in one frame's payload. `remembers`: its messages and tools are kept for later frames."""
    n_head, *counts = COUNTS.unpack_from(payload)
    at = COUNTS.size + n_head
    tree = _head(payload[COUNTS.size : at], remembers)
    if tree.pop("kind") == "feedback":
        about = TargetKind(tree.get("about", TargetKind.RESPONSE))
        return Feedback(**tree | {"source": FeedbackSource(tree["source"]), "about": about})
    if "quoted_user" not in tree:  # written by an earlier release, which proved no user
        tree |= {"user": None, "quoted_user": tree.get("user")}
    tools = tree["tools"]
    tree |= {"sampling": Sampling(**tree["sampling"]), "tools": tools if isinstance(tools, tuple) else tuple(tools)}
    if tree.pop("has_answer", False):
        return Interaction(**tree, **_taken_apart(payload[at:], is_remote=tree["upstream"] is not None))
    arrays = []
    for code, count in zip("iif", counts, strict=True):
        values: array[Any] = array(code)
        values.frombytes(payload[at : at + 4 * count])
        at += 4 * count
        arrays.append(values)
    return Interaction(**tree, prompt_ids=arrays[0], token_ids=arrays[1], logprobs=arrays[2])


def n_brackets(payload: bytes) -> int:
    """How many brackets open in the head of one frame's payload: at least as many as there are lists and objects."""
    end = COUNTS.size + COUNTS.unpack_from(payload)[0]
    return payload.count(b"[", 0, end) + payload.count(b"{", 0, end)


def outline(payload: bytes) -> Interaction:
    """The interaction in one frame's payload without its messages, tools and tokens, for little time."""
    at = COUNTS.size + COUNTS.unpack_from(payload)[0]
    head = _head_decoder.decode(payload[COUNTS.size : at])
    tree = {name: value for name in _FIELDS if (value := getattr(head, name)) is not msgspec.UNSET}
    tree |= {"messages": (), "tools": (), "sampling": Sampling(**tree["sampling"])}
    del tree["kind"]
    if tree.pop("has_answer", False):
        tree |= _taken_apart(payload[at:], is_remote=tree["upstream"] is not None)
    return Interaction(**tree)


def _head(text: bytes, remembers: bool) -> dict[str, Any]:
    """The fields of a head. Messages and tools that are remembered are not parsed again."""
    if not remembers:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # half of a surrogate pair, for example
            return dict(msgspec.json.decode(text))
    elif text.startswith(_OF_INTERACTION):
        try:
            head = _head_decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError):  # half of a surrogate pair, for example, or an unknown field
            pass
        else:
            tree = {name: value for name in _FIELDS if (value := getattr(head, name)) is not msgspec.UNSET}
            tree["messages"] = [READ.of(bytes(message)) for message in head.messages]
            tree["tools"] = READ.of(bytes(head.tools))
            return tree
    return dict(json.loads(text.decode("utf-8", "surrogatepass")))


def _taken_apart(answer: bytes, *, is_remote: bool) -> dict[str, Any]:
    """The parts of the record that an engine's whole answer adds for its one choice."""
    draft, problem = _draft_of(answer)
    return {
        "reply": Text(draft.message),
        "finish_reason": draft.finish_reason,
        "is_aborted": draft.finish_reason in (None, ABORTED),
        "quarantine": None if is_remote else problem or draft.quarantine(),
        "stop": draft.stop,
        "prompt_ids": draft.prompt_ids,
        "token_ids": draft.token_ids,
        "logprobs": draft.logprobs,
    }


def _draft_of(answer: bytes) -> tuple[Draft, str | None]:
    """The reply and its quarantine reason. If the ids cannot be read, only its words; if nothing can, nothing."""
    problem = None
    try:
        read = chunks.read(answer)
        draft = Draft.of(read.choices[0])
        if not draft.prompt_ids:
            draft.add_prompt(read.prompt_token_ids)
        return draft, None
    except _UNREADABLE as error:
        problem = f"unreadable answer: {error}"
    try:
        return Draft.of(chunks.skim(answer).choices[0]), problem
    except _UNREADABLE:
        return Draft(0), problem


def _frame(head: list[bytes], counts: Sequence[int], tail: Sequence[bytes]) -> list[bytes]:
    parts = [COUNTS.pack(sum(map(len, head)), *counts), *head, *tail]
    length = checksum = 0
    for part in parts:
        length += len(part)
        checksum = crc32(part, checksum)
    return [HEADER.pack(MAGIC, length, checksum), *parts]


def _to_json(tree: Mapping[str, Any]) -> bytes:
    try:
        return _encode(tree)
    except UnicodeEncodeError:  # half of a surrogate pair, which only the slower way can write
        plain = {name: asdict(value) if isinstance(value, Sampling) else value for name, value in tree.items()}
        plain = {
            name: json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else value for name, value in plain.items()
        }
        return json.dumps(plain).encode()


_OF_INTERACTION = b'{"kind":"interaction"'
_FIELDS = ("kind", "has_answer", *(set(Interaction.__dataclass_fields__) - {"prompt_ids", "token_ids", "logprobs"}))
_RAW = {"messages": list[msgspec.Raw], "tools": msgspec.Raw}
_head_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Head",
        [(name, _RAW[name]) if name in _RAW else (name, Any, msgspec.UNSET) for name in sorted(_FIELDS)],
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )
)
_encode = msgspec.json.encode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_RESULT = frozenset(
    {"interaction_id", "reply", "ended_at", "finish_reason", "choice", "is_aborted", "quarantine", "stop"}
)
_BEGUN = frozenset(Interaction.__dataclass_fields__) - _RESULT - {"prompt_ids", "token_ids", "logprobs", "remark"}
