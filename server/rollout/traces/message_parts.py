"""What was said in a turn, in the form of the GenAI semantic conventions: messages of typed parts, as JSON text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlmodel import Session

from burnish.journal.turns import blobs_of
from burnish.records import Message

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def of(session: Session, rows: Sequence[Any]) -> dict[str, dict[str, str]]:
    """The attributes of each turn in `rows`, by its id."""
    found = blobs_of(session, {digest for row in rows for digest in (*row.message_digests, row.reply_digest)})
    made = {}
    for row in rows:
        asked = [in_parts(found[digest]) for digest in row.message_digests if digest in found]
        reply = in_parts(found.get(row.reply_digest, {})) | {"finish_reason": row.finish_reason or ""}
        made[row.interaction_id] = {INPUT: _text(asked), OUTPUT: _text([reply])}
    return made


def in_parts(message: Message) -> dict[str, Any]:
    """A chat message as role and parts. Media are named, their data left out."""
    role = str(message.get("role", ""))
    if role == "tool":
        told = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message.get("content")}
        return {"role": role, "parts": [told]}
    return {"role": role, "parts": [*_said(message.get("content")), *_called(message.get("tool_calls"))]}


def _said(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, str) and content:
        yield {"type": "text", "content": content}
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            text = part.get("text")
            is_text = isinstance(text, str)
            yield {"type": "text", "content": text} if is_text else {"type": str(part.get("type", "unknown"))}


def _called(calls: Any) -> Iterator[dict[str, Any]]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            named = {"id": call.get("id"), "name": function.get("name")}
            yield {"type": "tool_call", **named, "arguments": function.get("arguments")}


def _text(value: Any) -> str:
    """JSON text that can be sent: half of a surrogate pair cannot."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
