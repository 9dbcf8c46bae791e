"""`system` and `messages` as the messages of a chat completion.

The translation is exact in both directions for replies that Burnish wrote: an assistant's blocks, sent back, give the
content and the tool calls that were recorded, so that the next request is recognised as a continuation. One message of
the client stays one, except for tool results: each becomes a `tool` message before the user's words beside it.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.chat_fields import MAX_MESSAGES
from burnish.server.gateway.dialects.messages.blocks import (
    Block,
    Content,
    content_of,
    joined,
    misplaced,
    parts_of,
    required,
    shown,
    text_of,
)
from burnish.server.gateway.dialects.messages.tool_calls import call_of

ChatMessage = dict[str, Any]
Ignore = Callable[[str], None]
_ATTRIBUTION = "x-anthropic-billing-header"


class Message(msgspec.Struct, gc=False):
    """One message. The newer API allows `system` in the middle of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content


Messages = Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]


def translated(system: Content | None, messages: Sequence[Message], ignore: Ignore) -> list[ChatMessage]:
    """All messages of the chat. `ignore` is called with the name of each part that is left out."""
    found = _system(system or "", "system")
    for at, message in enumerate(messages):
        place = f"messages[{at}].content"
        if message.role == "user":
            found += _user(message.content, place)
        elif message.role == "assistant":
            found.append(_assistant(message.content, place, ignore))
        else:
            found += _system(message.content, place)
    if not found:  # only system messages, all of them empty or only an attribution
        raise RequestError("messages: nothing is said in any of them", param="messages", code="invalid_value")
    return found


def is_prefill(messages: Sequence[ChatMessage]) -> bool:
    """True if the last message is the beginning of the reply, which the model continues."""
    last = messages[-1]
    return last["role"] == "assistant" and bool(last["content"]) and "tool_calls" not in last


def _system(content: Content, place: str) -> list[ChatMessage]:
    blocks = [Block("text", text=content)] if isinstance(content, str) else content
    for at, block in enumerate(blocks):
        if block.type != "text":
            raise misplaced(block, f"{place}[{at}]", "text")
    texts = [_without_attribution(text_of(block, f"{place}[{at}]")) for at, block in enumerate(blocks)]
    text = "\n".join(filter(None, texts))
    return [{"role": "system", "content": text}] if text else []


def _without_attribution(text: str) -> str:
    """Claude Code's attribution line holds a `cch=…` that changes with every request.

    If it stayed, the head of every prompt would be new: no prefix cache would hit, and no turn would be recognised as a
    continuation. It tells the model nothing.
    """
    return text.partition("\n")[2].lstrip("\n") if text.startswith(_ATTRIBUTION) else text


def _user(content: Content, place: str) -> list[ChatMessage]:
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    if not content:
        raise RequestError(f"{place}: expected at least one block", param=place, code="invalid_value")
    results: list[ChatMessage] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        here = f"{place}[{at}]"
        if block.type == "tool_result":
            results.append(_tool_result(block, here))
        else:
            parts += shown(block, here)
    if parts or not results:
        results.append({"role": "user", "content": joined(parts)})
    return results


def _tool_result(block: Block, place: str) -> ChatMessage:
    """The result as it came. `is_error` stays beside it for the record, because engines skip keys that they do not
    know.
    """
    call_id = required(block.tool_use_id, f"{place}.tool_use_id")
    content = joined(parts_of(content_of(block, place), f"{place}.content"))
    message: ChatMessage = {"role": "tool", "tool_call_id": call_id, "content": content}
    if block.is_error:
        message["is_error"] = True
    return message


def _assistant(content: Content, place: str, ignore: Ignore) -> ChatMessage:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        here = f"{place}[{at}]"
        match block.type:
            case "text":
                texts.append(text_of(block, here))
            case "thinking":
                thoughts.append(required(block.thinking, f"{here}.thinking"))
            case "tool_use":
                calls.append(call_of(block, here))
            case "tool_result" | "image" | "document":
                raise misplaced(block, here, "text, thinking, tool_use; the rest belongs to the user")
            case _:  # redacted thinking, and the work of tools that Anthropic runs: neither can come from here
                ignore(f"content.{block.type}")
    text = "".join(texts)  # joined as sampled: nothing may come between two pieces of one reply
    message: ChatMessage = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning := "".join(thoughts):
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message
