"""The body of a Messages request as a Call. Fields that Burnish acts on are typed; the others are reported as ignored.

server/gateway/dialects/chat.py reads the resulting chat completion like any other, so sampling, grammars and the
engine's fields are handled in one place. All errors are found before, so that they name the client's field.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.call import BodyLabels, Call, JsonObject
from burnish.server.gateway.dialects import chat
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects.messages import conversation
from burnish.server.gateway.dialects.messages import metadata as person
from burnish.server.gateway.dialects.messages.blocks import Content
from burnish.server.gateway.dialects.messages.conversation import ChatMessage
from burnish.server.gateway.dialects.messages.renderer import MessageRenderer
from burnish.server.gateway.dialects.messages.tools import Tool, ToolChoice, chosen, functions

T = TypeVar("T")
SAME = ("model", "stream", "max_tokens", "temperature", "top_p", "top_k")
OURS = ("session_id", "turn_type", "session_done")  # read from any body; see docs/reference/http.md
SILENT = frozenset({"cache_control"})  # the engine caches every prefix anyway
MAX_IGNORED = 16
_PLAIN = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Stop = Annotated[str, msgspec.Meta(min_length=1)]


class Metadata(msgspec.Struct, gc=False):
    user_id: str | None = None


class Thinking(msgspec.Struct, gc=False):
    """Decides whether the reasoning is shown. The model decides how much of it there is."""

    type: str
    display: str | None = None
    budget_tokens: Any = None

    @property
    def is_shown(self) -> bool:
        return self.type != "disabled" and self.display != "omitted"


class Format(msgspec.Struct, gc=False):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, gc=False):
    format: Format | None = None
    effort: Any = None


class Fields(msgspec.Struct, gc=False):
    """The fields of a Messages request that Burnish reads."""

    model: _Name
    messages: conversation.Messages
    max_tokens: _Positive | None = None
    system: Content | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[_Stop] | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=common.MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    metadata: Metadata | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | str | int | None = None


class Translation:
    """One Messages body: its typed fields, its chat form, and the names of what was left out."""

    def __init__(self, body: bytes) -> None:
        _check_text(body)
        raw = _decoded(body, _raw)
        common.check_fields(raw)
        for name in ("output_config", "output_format"):
            common.check_schema(name, raw.get(name, common.NULL))
        self.fields = _decoded(body, _fields)
        self._ignored: dict[str, None] = {}
        for name, value in raw.items():
            if name not in _KNOWN and value != common.NULL:
                self._ignore(name)
        self.messages = conversation.translated(self.fields.system, self.fields.messages, self._ignore)
        self.tools = functions(self.fields.tools or (), self._ignore)
        self.prompt = _prompt(self.messages, self.tools)
        if self.fields.thinking is not None and self.fields.thinking.budget_tokens is not None:
            self._ignore("thinking.budget_tokens")
        if self.fields.output_config is not None and self.fields.output_config.effort is not None:
            self._ignore("output_config.effort")
        self._sent = {name for name, value in raw.items() if value != common.NULL}

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(self._ignored)

    def chat(self) -> bytes:
        """The body of the chat completion."""
        fields = self.fields
        body: dict[str, Any] = {name: getattr(fields, name) for name in (*SAME, *OURS) if name in self._sent}
        body |= self.prompt
        if fields.stream:
            body["stream_options"] = {"include_usage": True}
        if fields.stop_sequences:
            body["stop"] = fields.stop_sequences
        if fields.tool_choice is not None:
            body |= chosen(fields.tool_choice, self.tools)
        wanted = (fields.output_config and fields.output_config.format) or fields.output_format
        if wanted is not None:
            schema = {"name": "output", "schema": wanted.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return msgspec.json.encode(body)

    def counted(self) -> dict[str, Any]:
        """The fields that decide the prompt's tokens. `strict` on forced tools does if the model's template shows
        it."""
        choice = chosen(self.fields.tool_choice, self.tools).get("tool_choice") if self.fields.tool_choice else None
        tools = chat.strict_tools(msgspec.Raw(msgspec.json.encode(self.tools)), choice)
        return self.prompt if tools is None else {**self.prompt, "tools": tools}

    def _ignore(self, name: str) -> None:
        """Names come from the client and go into a header, so only plain ones are kept, and not too many."""
        if len(self._ignored) < MAX_IGNORED and name not in SILENT and _PLAIN.fullmatch(name):
            self._ignored[name] = None


def parse(body: bytes) -> Call:
    """The call in a Messages body. Raises RequestError with the name of the field at fault."""
    translation = Translation(body)
    fields = translation.fields
    if fields.max_tokens is None:
        raise RequestError("max_tokens: missing required field `max_tokens`", param="max_tokens", code="invalid_value")
    call = chat.parse(translation.chat())
    is_shown = fields.thinking is not None and fields.thinking.is_shown
    call.render = lambda model, request_id: MessageRenderer(model, request_id, shows_thinking=is_shown)
    call.ignored = translation.ignored
    if fields.metadata is not None and fields.metadata.user_id:
        call.quoted_user, session = person.split(fields.metadata.user_id)
        if session and not call.said.session:
            call.said = BodyLabels(session, person.FIELD, call.said.turn_type, call.said.is_done)
    return call


def _prompt(messages: list[ChatMessage], functions: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields that decide the prompt's tokens, for a reply and for counting."""
    body: dict[str, Any] = {"messages": messages}
    if functions:
        body["tools"] = functions
    if conversation.is_prefill(messages):
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    return body


def _check_text(body: bytes) -> None:
    """Refuse bytes that are not UTF-8: msgspec does not look at them in parts that are taken as they are."""
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: {error}", code="invalid_json") from error


def _decoded(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise common.explained(error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error


_raw = msgspec.json.Decoder(JsonObject)
_fields = msgspec.json.Decoder(Fields)
_KNOWN = frozenset(Fields.__struct_fields__)
