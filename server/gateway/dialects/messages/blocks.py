"""A content block of the Messages API, and its form in a chat message's `content`.

Content that the engine cannot see is refused with its place. It is never dropped in silence.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.chat_fields import MAX_MESSAGES, check
from burnish.server.gateway.dialects.media import check_address

ABSENT = msgspec.Raw(b"")
Part = dict[str, Any]


class Block(msgspec.Struct, gc=False):
    """Any block. Its fields depend on `type`. Fields with a shape that depends on the type stay JSON text here."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    title: str | None = None
    context: str | None = None
    input: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    source: msgspec.Raw = ABSENT


class _Source(msgspec.Struct, gc=False):
    """The source of an image or a document."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: str | list[Block] | None = None


Content = str | Annotated[list[Block], msgspec.Meta(max_length=MAX_MESSAGES)]
_content = msgspec.json.Decoder(Content | None)
_source = msgspec.json.Decoder(_Source)
_text = msgspec.json.Decoder(str)


def content_of(block: Block, place: str) -> Content:
    """The `content` of a tool result, a document or a search result. Empty if there is none."""
    if block.content == ABSENT:
        return ""
    found: Content | None = check(f"{place}.content", block.content, _content)
    return found or ""


def parts_of(content: Content, place: str) -> list[Part]:
    """The texts and images of a tool's result or a document, in order."""
    if isinstance(content, str):
        return [_text_part(content)] if content else []
    return [part for at, block in enumerate(content) for part in shown(block, f"{place}[{at}]")]


def shown(block: Block, place: str) -> list[Part]:
    """The texts and images of one block."""
    match block.type:
        case "text":
            text = text_of(block, place)
            return [_text_part(text)] if text else []
        case "image":
            return [_image(block, place)]
        case "document":
            return _document(block, place)
        case "search_result":
            return _search_result(block, place)
        case "tool_reference":  # a tool that a search found; the engine got all tools at the start
            return [_text_part(required(block.tool_name, f"{place}.tool_name"))]
        case _:
            raise misplaced(block, place, "text, image, document, search_result, tool_result")


def joined(parts: Sequence[Part]) -> str | list[Part]:
    """Parts as a chat message's `content`. Texts alone become one text, because some chat templates know no parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def text_of(block: Block, place: str) -> str:
    """The text of a block that must have one."""
    return required(block.text, f"{place}.text")


def required(value: str | None, place: str) -> str:
    """`value`, which must not be None. Raises RequestError otherwise."""
    if value is None:
        raise RequestError(
            f"{place}: missing required field `{place.rpartition('.')[2]}`", param=place, code="invalid_value"
        )
    return value


def misplaced(block: Block, place: str, expected: str) -> RequestError:
    return RequestError(
        f"{place}.type: got {block.type[:64]!r}, expected one of {expected}", param=f"{place}.type", code="unsupported"
    )


def _image(block: Block, place: str) -> Part:
    place = f"{place}.source"
    source = _source_of(block, place)
    if source.type == "base64":
        kind, data = required(source.media_type, f"{place}.media_type"), required(source.data, f"{place}.data")
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if source.type == "url":
        check_address(required(source.url, f"{place}.url"), f"{place}.url")
        return {"type": "image_url", "image_url": {"url": source.url}}
    raise _unsupported(source, place, "base64")


def _document(block: Block, place: str) -> list[Part]:
    """Title, context, then the text. A PDF or a stored file is refused, because nothing here reads those."""
    heading = [_text_part(text) for text in (block.title, block.context) if text]
    source = _source_of(block, f"{place}.source")
    if source.type == "text":
        return [*heading, _text_part(required(source.data, f"{place}.source.data"))]
    if source.type == "content":
        return [*heading, *parts_of(source.content or "", f"{place}.source.content")]
    raise _unsupported(source, f"{place}.source", "text, content")


def _search_result(block: Block, place: str) -> list[Part]:
    source: str = check(f"{place}.source", block.source, _text) if block.source != ABSENT else ""
    heading = [_text_part(text) for text in (block.title, source) if text]
    return [*heading, *parts_of(content_of(block, place), f"{place}.content")]


def _source_of(block: Block, place: str) -> _Source:
    if block.source == ABSENT:
        required(None, place)
    source: _Source = check(place, block.source, _source)
    return source


def _unsupported(source: _Source, place: str, expected: str) -> RequestError:
    return RequestError(
        f"{place}.type: got {source.type[:64]!r}, expected one of {expected}; nothing here reads other sources",
        param=f"{place}.type",
        code="unsupported",
    )


def _text_part(text: str) -> Part:
    return {"type": "text", "text": text}
