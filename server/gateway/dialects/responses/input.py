"""`instructions` and `input` as chat messages.

One reply consists of several items (reasoning, text, calls). Neighbouring items become one assistant message again,
equal to the recorded reply. So the next turn is linked to it, and the engine finds its prefix.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects import media
from burnish.server.gateway.dialects.responses import custom_tools, encrypted_reasoning, local_shell

Tree = dict[str, Any]


class Part(msgspec.Struct, gc=False):
    """One element of a message's `content` or of an output's `output`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    input_audio: Any = None


class _Peek(msgspec.Struct, gc=False):
    type: str | None = None
    role: str | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | Annotated[list[Part], msgspec.Meta(max_length=common.MAX_MESSAGES)]


class _FunctionCall(msgspec.Struct, gc=False):
    call_id: str
    name: str
    arguments: str


class _CustomCall(msgspec.Struct, gc=False):
    call_id: str
    name: str
    input: str


class _ShellCall(msgspec.Struct, gc=False):
    call_id: str
    action: dict[str, Any]
    id: str | None = None


class _CallOutput(msgspec.Struct, gc=False):
    call_id: str
    output: str | list[Part]


class _ShellOutput(msgspec.Struct, gc=False):
    output: str
    call_id: str | None = None
    id: str | None = None


class _Reasoning(msgspec.Struct, gc=False):
    content: list[Part] | None = None
    encrypted_content: str | None = None


class _Reply:
    """An assistant message that is being assembled."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[Tree] = []

    @property
    def message(self) -> Tree:
        message: Tree = {"role": "assistant", "content": "".join(self.texts) or (None if self.calls else "")}
        if self.reasoning:
            message["reasoning"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class Conversation:
    """Takes the items of `input` one by one. `messages` is their chat form; `ignored` names what was left out."""

    def __init__(self, instructions: str | None) -> None:
        self.ignored: list[str] = []
        self._messages: list[Tree | _Reply] = []
        self._shell_ids: dict[str, str] = {}
        if instructions:
            self._messages.append({"role": "system", "content": instructions})

    @property
    def messages(self) -> list[Tree]:
        return [item.message if isinstance(item, _Reply) else item for item in self._messages]

    def read(self, given: str | list[msgspec.Raw]) -> list[Tree]:
        """The whole of `input`. Raises RequestError with the item and field at fault."""
        if isinstance(given, str):
            self._messages.append({"role": "user", "content": given})
        else:
            for position, raw in enumerate(given):
                self._take(raw, f"input[{position}]")
        if not self._messages:
            raise RequestError("input: expected at least one item", param="input", code="invalid_value")
        return self.messages

    def _take(self, raw: msgspec.Raw, place: str) -> None:
        peek = common.check(place, raw, _peek)
        kind = peek.type or ("message" if peek.role is not None else "item_reference")
        if kind in _ITEMS:
            decoder, take = _ITEMS[kind]
            take(self, common.check(place, raw, decoder), place)
        elif kind in _LEFT_OUT:
            self.ignored.append(f"input.{kind}")
        elif kind == "item_reference":
            raise _unsupported(place, "nothing is stored that an item could refer to; send the item itself")
        else:
            raise _unsupported(f"{place}.type", f"items of type {kind!r} cannot be told to the engine; leave them out")

    @property
    def _reply(self) -> _Reply:
        """The assistant message that is open, or a new one."""
        last = self._messages[-1] if self._messages else None
        if isinstance(last, _Reply):
            return last
        reply = _Reply()
        self._messages.append(reply)
        return reply

    def _message(self, item: _Message, place: str) -> None:
        role = _ROLES.get(item.role)
        if role is None:
            param = f"{place}.role"
            raise RequestError(
                f"{param}: expected {', '.join(_ROLES)}, got {item.role!r}", param=param, code="invalid_value"
            )
        if role != "assistant":
            self._messages.append({"role": role, "content": _content(item.content, f"{place}.content")})
        elif isinstance(item.content, str):
            self._reply.texts.append(item.content)
        else:
            self._reply.texts.extend(_text(part, f"{place}.content[{at}]") for at, part in enumerate(item.content))

    def _reasoning(self, item: _Reasoning, place: str) -> None:
        texts = [_text(part, f"{place}.content[{at}]") for at, part in enumerate(item.content or ())]
        text = "".join(texts) or encrypted_reasoning.opened(item.encrypted_content)
        if text:
            self._reply.reasoning.append(text)

    def _function_call(self, item: _FunctionCall, place: str) -> None:
        self._call(item.call_id, item.name, item.arguments)

    def _custom_call(self, item: _CustomCall, place: str) -> None:
        self._call(item.call_id, item.name, custom_tools.arguments_of(item.input))

    def _shell_call(self, item: _ShellCall, place: str) -> None:
        if item.id:
            self._shell_ids[item.id] = item.call_id
        self._call(item.call_id, local_shell.NAME, local_shell.arguments_of(item.action))

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        self._reply.calls.append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        )

    def _call_output(self, item: _CallOutput, place: str) -> None:
        self._result(item.call_id, _content(item.output, f"{place}.output"))

    def _shell_output(self, item: _ShellOutput, place: str) -> None:
        call_id = item.call_id or self._shell_ids.get(
            item.id or "", item.id
        )  # clients name the call by either of its ids
        if not call_id:
            param = f"{place}.call_id"
            raise RequestError(f"{param}: missing required field `call_id`", param=param, code="invalid_value")
        self._result(call_id, item.output)

    def _result(self, call_id: str, content: str | list[Tree]) -> None:
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": content})


def _content(content: str | list[Part], place: str) -> str | list[Tree]:
    """Chat content. A single text stays a text, because many chat templates know nothing else."""
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{place}[{at}]") for at, part in enumerate(content)]
    if not parts:
        return ""
    text: str | list[Tree] = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    return text


def _part(part: Part, place: str) -> Tree:
    if part.type == "input_image":
        if part.image_url is None:
            raise _unsupported(
                f"{place}.image_url", "nothing is stored that an id could refer to; send the image's data"
            )
        media.check_address(part.image_url, f"{place}.image_url")
        image = {"url": part.image_url} | ({"detail": part.detail} if part.detail else {})
        return {"type": "image_url", "image_url": image}
    if part.type == "input_audio":
        return {"type": "input_audio", "input_audio": part.input_audio}
    if part.type == "input_file":
        raise _unsupported(place, "the engine reads no files; send the file's text as `input_text`")
    return {"type": "text", "text": _text(part, place)}


def _text(part: Part, place: str) -> str:
    if part.type not in _TEXTS:
        raise _unsupported(f"{place}.type", f"expected text here, got {part.type!r}")
    field = "refusal" if part.type == "refusal" else "text"
    text: str | None = getattr(part, field)
    if text is None:
        param = f"{place}.{field}"
        raise RequestError(f"{param}: missing required field `{field}`", param=param, code="invalid_value")
    return text


def _unsupported(param: str, what: str) -> RequestError:
    return RequestError(f"{param}: {what}", param=param, code="unsupported")


_Take = Callable[[Conversation, Any, str], None]
_peek = msgspec.json.Decoder(_Peek)
_ROLES = {
    "user": "user",
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
}  # templates know no developer
_TEXTS = frozenset({"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"})
_ITEMS: dict[str, tuple[Any, _Take]] = {
    "message": (msgspec.json.Decoder(_Message), Conversation._message),
    "reasoning": (msgspec.json.Decoder(_Reasoning), Conversation._reasoning),
    "function_call": (msgspec.json.Decoder(_FunctionCall), Conversation._function_call),
    "function_call_output": (msgspec.json.Decoder(_CallOutput), Conversation._call_output),
    "custom_tool_call": (msgspec.json.Decoder(_CustomCall), Conversation._custom_call),
    "custom_tool_call_output": (msgspec.json.Decoder(_CallOutput), Conversation._call_output),
    "local_shell_call": (msgspec.json.Decoder(_ShellCall), Conversation._shell_call),
    "local_shell_call_output": (msgspec.json.Decoder(_ShellOutput), Conversation._shell_output),
}
_LEFT_OUT = frozenset(  # traces of tools that OpenAI ran; the texts around them stay
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *("tool_search_call", "tool_search_output", "additional_tools"),
    }
)
