"""Tool calls: arguments are JSON text in a chat completion and an object in a Messages block.

A model may write arguments that are not a JSON object. The client gets them under one key, `UNPARSED`, which no tool's
schema knows. So the client's check fails and nothing runs with arguments that nobody gave. If the client sends the
block back, the recorded text is restored, and the turn is still recognised.
"""

from typing import Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.chat_fields import check
from burnish.server.gateway.dialects.messages.blocks import ABSENT, Block, required
from burnish.wire.chunks import CallPiece

UNPARSED = "unparsed_arguments"
_MARK = UNPARSED.encode()
_object = msgspec.json.Decoder(dict[str, Any])


def call_of(block: Block, place: str) -> dict[str, Any]:
    """A `tool_use` block as an element of `tool_calls`."""
    call_id = required(block.id, f"{place}.id")
    name = required(block.name, f"{place}.name")
    function = {"name": name, "arguments": _arguments(block.input, f"{place}.input")}
    return {"id": call_id, "type": "function", "function": function}


def block_of(call: CallPiece) -> dict[str, Any]:
    """An element of `tool_calls` as a `tool_use` block."""
    function = call.function
    arguments = (function and function.arguments) or ""
    name = (function and function.name) or ""
    return {"type": "tool_use", "id": call.id or "", "name": name, "input": _input(arguments)}


def _input(arguments: str) -> dict[str, Any]:
    if not arguments.strip():
        return {}
    try:
        return _object.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {UNPARSED: arguments}


def _arguments(given: msgspec.Raw, place: str) -> str:
    """The client's own JSON text. Decoding and encoding it again could only change it."""
    if given == ABSENT:
        return "{}"
    raw = bytes(given)
    if not raw.startswith(b"{"):
        raise RequestError(f"{place}: expected an object", param=place, code="invalid_value")
    if _MARK in raw:
        tree = check(place, given, _object)
        if len(tree) == 1 and isinstance(tree.get(UNPARSED), str):
            return str(tree[UNPARSED])
    return raw.decode()
