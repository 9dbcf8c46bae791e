"""A Responses body as a Call: the chat completion that it means, to be answered as a Response."""

from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.call import BodyLabels, Call, JsonObject
from burnish.server.gateway.dialects import chat
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects.responses.input import Conversation
from burnish.server.gateway.dialects.responses.output import Output
from burnish.server.gateway.dialects.responses.renderer import ResponsesRenderer
from burnish.server.gateway.dialects.responses.request_fields import (
    MAX_IGNORED,
    PASSED,
    Fields,
    Format,
    ignored,
    refuse,
)
from burnish.server.gateway.dialects.responses.response import Echo
from burnish.server.gateway.dialects.responses.tools import Tool, Toolbox, toolbox_of

Tree = dict[str, Any]
_CLIENT_NAMES = ("thread_id", "session_id", "conversation_id")
_BIG = {
    "input": msgspec.json.Decoder(str | Annotated[list[msgspec.Raw], msgspec.Meta(max_length=common.MAX_MESSAGES)]),
    "tools": msgspec.json.Decoder(Annotated[list[Tool], msgspec.Meta(max_length=common.MAX_TOOLS)] | None),
}


def parse(body: bytes) -> Call:
    """The call in a Responses body. Raises RequestError with the name of the field at fault."""
    fields, raw = common.parse(body, Fields, _BIG)
    checked = {name: common.check(name, raw[name], decoder) for name, decoder in _BIG.items() if name in raw}
    refuse(fields)
    common.check_schema("text", raw.get("text", common.NULL))
    if "input" not in raw:
        raise RequestError("input: missing required field `input`", param="input", code="invalid_value")
    toolbox = toolbox_of(checked.get("tools") or [], fields.tool_choice)
    conversation = Conversation(fields.instructions)
    messages = conversation.read(checked["input"])
    call = chat.parse(msgspec.json.encode(_chat(fields, raw, messages, toolbox)))
    echo = Echo(fields, raw)

    def render(model: str, request_id: str) -> ResponsesRenderer:
        output = Output(request_id, toolbox.kinds, is_sealed=fields.wants_encrypted)
        return ResponsesRenderer(echo, output, model, request_id, wants_logprobs=fields.wants_logprobs)

    call.render = render
    call.said = _said(fields)
    call.quoted_user = fields.user or fields.safety_identifier
    call.ignored = tuple(dict.fromkeys([*toolbox.ignored, *conversation.ignored, *ignored(fields, raw)]))[:MAX_IGNORED]
    return call


def _chat(fields: Fields, raw: JsonObject, messages: list[Tree], toolbox: Toolbox) -> Tree:
    """The chat completion's body."""
    body: Tree = {"model": fields.model, "messages": messages, "stream": bool(fields.stream)}
    body |= {name: raw[name] for name in PASSED if name in raw}
    if fields.stream:
        body["stream_options"] = {"include_usage": True}
    if fields.max_output_tokens is not None:
        body["max_tokens"] = fields.max_output_tokens
    if fields.reasoning is not None and fields.reasoning.effort is not None:
        body["reasoning_effort"] = fields.reasoning.effort
    if fields.text is not None and fields.text.format is not None and fields.text.format.type != "text":
        body["response_format"] = _response_format(fields.text.format)
    if fields.wants_logprobs:
        body |= {"logprobs": True, "top_logprobs": fields.top_logprobs or 0}
    if toolbox.chat:  # vLLM refuses an empty list, and a choice without tools
        body["tools"] = toolbox.chat
        if toolbox.choice is not None:
            body["tool_choice"] = toolbox.choice
        if fields.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = fields.parallel_tool_calls
    return body


def _response_format(form: Format) -> Tree:
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.type != "json_schema":
        param = "text.format.type"
        what = f"{param}: expected text, json_object or json_schema, got {form.type!r}"
        raise RequestError(what, param=param, code="invalid_value")
    for name in ("name", "schema"):
        if getattr(form, name) is None:
            param = f"text.format.{name}"
            raise RequestError(f"{param}: missing required field `{name}`", param=param, code="invalid_value")
    schema: Tree = {"name": form.name, "schema": form.schema}
    if form.description is not None:
        schema["description"] = form.description
    if form.strict is not None:
        schema["strict"] = form.strict
    return {"type": "json_schema", "json_schema": schema}


def _said(fields: Fields) -> BodyLabels:
    """As in a chat. Codex and others write the name into `client_metadata`."""
    said = common.said_of(fields)
    client_labels = fields.client_metadata if isinstance(fields.client_metadata, dict) else {}
    if said.session is None:
        for name in _CLIENT_NAMES:
            if isinstance(value := client_labels.get(name), str) and value:
                return BodyLabels(value, f"client_metadata.{name}", said.turn_type, said.is_done)
    return said
