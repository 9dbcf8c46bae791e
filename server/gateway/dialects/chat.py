"""`/v1/chat/completions`: the engine's answer is relayed, less the fields that the client did not ask for."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.call import Call, JsonObject, Reply
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects import media
from burnish.server.gateway.dialects.chat_fields import NULL, TRUE, Common
from burnish.server.gateway.http import error_envelope
from burnish.wire.chunks import Answer, Chunk

DONE = b"data: [DONE]\n\n"


class _Message(msgspec.Struct, gc=False):
    """The fields that are looked at. The engine checks the rest."""

    role: str
    content: str | Annotated[list[media.Part | str], msgspec.Meta(max_length=common.MAX_MESSAGES)] | None = None


class _ToolFunction(msgspec.Struct, gc=False):
    strict: bool | None = None
    parameters: msgspec.Raw = NULL


class _Tool(msgspec.Struct, gc=False):
    function: _ToolFunction | None = None


class Fields(Common):
    """The fields of a chat completion that Burnish reads, except `messages` and `tools`."""

    logprobs: bool | None = None
    top_logprobs: int | None = None
    include_reasoning: bool | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


_BIG = frozenset({"messages", "tools"})
_messages_decoder = msgspec.json.Decoder(
    Annotated[list[_Message], msgspec.Meta(min_length=1, max_length=common.MAX_MESSAGES)]
)
_tools_decoder = msgspec.json.Decoder(Annotated[list[_Tool], msgspec.Meta(max_length=common.MAX_TOOLS)] | None)


def parse(body: bytes) -> Call:
    """The call in a chat completion's body. Raises RequestError with the name of the field at fault."""
    fields, raw = common.parse(body, Fields, _BIG)
    messages = raw.get("messages")
    if messages is None:
        raise RequestError("messages: missing required field `messages`", param="messages", code="invalid_value")
    _check_messages(messages)
    if fields.top_logprobs and not fields.logprobs:
        raise RequestError("top_logprobs: needs `logprobs: true`", param="top_logprobs", code="invalid_value")
    tools = common.check("tools", raw["tools"], _tools_decoder) if "tools" in raw else None
    if tools:
        _check_strict(tools)
    return Call(
        model=fields.model,
        is_stream=bool(fields.stream),
        body=_for_engine(raw, fields),
        messages=messages,
        tools=raw["tools"] if tools else None,
        sampling=common.sampling_of(fields, is_constrained=_is_constrained(fields, tools or ())),
        n=fields.n or 1,
        quoted_user=fields.user,
        said=common.said_of(fields),
        render=lambda model, request_id: ChatRenderer(fields, model),
        strict_tools=strict_tools(raw["tools"], fields.tool_choice) if tools else None,
    )


def _check_messages(messages: msgspec.Raw) -> None:
    seen = count()
    for at, message in enumerate(common.check("messages", messages, _messages_decoder)):
        if isinstance(message.content, list):
            media.check_parts(message.content, f"messages[{at}].content", seen)


def _check_strict(tools: Sequence[_Tool]) -> None:
    """Raises RequestError if the schemas of strict tools, of which the engine makes a grammar, are too long."""
    size = sum(len(tool.function.parameters) for tool in tools if tool.function and tool.function.strict)
    if size > common.MAX_SCHEMA:
        what = f"the parameters of strict tools have {size:,} bytes, expected at most {common.MAX_SCHEMA:,}"
        raise RequestError(f"tools: {what}; leave out `strict`", param="tools", code="invalid_value")


def strict_tools(tools: msgspec.Raw, choice: str | dict[str, Any] | None) -> msgspec.Raw | None:
    """`tools` with `strict` on those that `choice` forces, so that the engine holds their arguments to the schema.

    Without `strict`, vLLM 0.32 forces the call and leaves the arguments free. A tool that says `strict: false` stays
    free, and so do tools whose schemas are too long. Returns None if nothing is forced or nothing changes. A choice
    between calling and not calling is sampled freely.
    """
    name = _forced(choice)
    if name is None:
        return None
    made, is_changed, size = _objects(tools), False, 0
    for tool in made:
        function = _tree(tool["function"]) if tool.get("function", NULL) != NULL else {}
        is_meant = not name or ("name" in function and msgspec.json.decode(function["name"]) == name)
        if function and is_meant and function.get("strict", NULL) == NULL:
            tool["function"] = msgspec.Raw(msgspec.json.encode(function | {"strict": TRUE}))
            is_changed, size = True, size + len(function.get("parameters", NULL))
    return msgspec.Raw(msgspec.json.encode(made)) if is_changed and size <= common.MAX_SCHEMA else None


def _forced(choice: str | dict[str, Any] | None) -> str | None:
    """The tool that must be called. Empty if any tool may be. None if no call is forced."""
    if choice == "required":
        return ""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _for_engine(raw: JsonObject, fields: Fields) -> JsonObject:
    body = common.recorded(raw, fields, TRUE)
    # vLLM would withhold ids and log-probs too, so the gateway strips the text itself
    if fields.include_reasoning is False:
        body["include_reasoning"] = TRUE
    return body


def _is_constrained(fields: Fields, tools: Sequence[_Tool]) -> bool:
    """True if a grammar masks the logits. vLLM adds one for strict tools and for single calls as well."""
    if common.is_grammar(fields):
        return True
    if not tools or fields.tool_choice == "none":
        return False
    is_auto = fields.tool_choice in (None, "auto")
    return (
        not is_auto
        or fields.parallel_tool_calls is False
        or any(tool.function and tool.function.strict for tool in tools)
    )


class ChatRenderer:
    """Removes from each chunk what was added for the record and leaves the rest as the engine wrote it."""

    def __init__(self, fields: Fields, model: str) -> None:
        self._name = msgspec.Raw(msgspec.json.encode(model))
        self._wants_ids = bool(fields.return_token_ids)
        self._wants_usage = fields.wants_usage
        self._hides_reasoning = fields.include_reasoning is False
        self._wants_logprobs = bool(fields.logprobs) and not self._hides_reasoning
        self._is_plain = not (self._wants_ids or self._hides_reasoning or self._wants_logprobs)
        self._head = b""

    def response_id(self, engine_id: str) -> str:
        return engine_id

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        if (
            self._is_plain
            and not self._wants_usage
            and len(chunk.choices) == 1
            and (event := self._plain_event(chunk)) is not None
        ):
            return event
        tree = _tree(data)
        if not self._wants_usage:
            tree.pop("usage", None)
        if not chunk.choices and "usage" not in tree:
            return b""
        is_needed = self._strip(tree, chunk, "delta") or "usage" in tree or self._wants_ids
        return b"data: " + msgspec.json.encode(tree) + b"\n\n" if is_needed else b""

    def end(self) -> bytes:
        return DONE

    def whole(self, data: bytes, answer: Answer) -> bytes:
        if self._is_plain and (body := self._plain_body(answer)) is not None:
            return body
        tree = _tree(data)
        self._strip(tree, answer, "message")
        return msgspec.json.encode(tree)

    def _plain_event(self, chunk: Chunk) -> bytes | None:
        """One token for a client that asked for no extras, written anew. This takes a third of the time of a full
        rewrite.

        None if the chunk holds more than text.
        """
        choice = chunk.choices[0]
        piece = choice.delta
        if (
            piece is None
            or piece.tool_calls
            or piece.reasoning is not None
            or piece.role
            or choice.finish_reason is not None
        ):
            return None
        if not piece.content:
            return b""
        text = _encode(piece.content)
        if not self._head:
            shown = (_encode(chunk.id), chunk.created, self._name, self._name)
            self._head = _PLAIN_HEAD % shown
        return b'%b{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._head,
            choice.index,
            text,
        )

    def _plain_body(self, answer: Answer) -> bytes | None:
        """The same for a whole reply: each message as the engine wrote it, the rest written anew."""
        choices = []
        for choice in answer.choices:
            if choice.message is None or (
                b'"reasoning":' in (text := bytes(choice.message)) and _HAS_REASONING.search(text)
            ):
                return None
            ending = (choice.index, text, _encode(choice.finish_reason), _encode(choice.stop_reason))
            choices.append(b'{"index":%d,"message":%b,"logprobs":null,"finish_reason":%b,"stop_reason":%b}' % ending)
        shown = (_encode(answer.id), answer.created, self._name, self._name, b",".join(choices), _encode(answer.usage))
        return _PLAIN_BODY % shown

    def _strip(self, tree: JsonObject, chunk: Answer, piece_key: str) -> bool:
        """Make the engine's answer the client's. False if nothing is left that the client asked for."""
        tree["model"] = tree["system_fingerprint"] = self._name
        if not self._wants_ids:
            tree.pop("prompt_token_ids", None)
        if not chunk.choices:
            return False
        is_needed = False
        choices = _objects(tree["choices"])
        for choice, typed in zip(choices, chunk.choices, strict=True):
            if not self._wants_ids:
                choice.pop("token_ids", None)
            if not self._wants_logprobs:
                choice["logprobs"] = NULL
            piece = typed.piece
            if piece is not None and (piece.reasoning is not None or self._hides_reasoning):
                self._treat_reasoning(choice, piece_key)
            is_needed = (
                is_needed
                or choice.get(piece_key, _EMPTY) not in (_EMPTY, NULL)
                or typed.finish_reason is not None
                or choice["logprobs"] != NULL
            )
        tree["choices"] = msgspec.Raw(msgspec.json.encode(choices))
        return is_needed

    def _treat_reasoning(self, choice: JsonObject, piece_key: str) -> None:
        """Harnesses read `reasoning` or `reasoning_content`, so both are given, or neither if the client wants none."""
        piece = _tree(choice[piece_key])
        if self._hides_reasoning:
            piece.pop("reasoning", None)
            piece.pop("reasoning_content", None)
        else:
            piece["reasoning_content"] = piece["reasoning"]
        choice[piece_key] = msgspec.Raw(msgspec.json.encode(piece))


class Chat:
    """The dialect."""

    name = "chat"

    def read(self, body: bytes, headers: Mapping[bytes, str]) -> Call:
        return parse(body)

    def reply_to(self, error: BaseException, request_id: str) -> Reply:
        return error_envelope.reply_to(error, request_id)

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        return error_envelope.frame_of(error, request_id)


_EMPTY = msgspec.Raw(b"{}")
_PLAIN_HEAD = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"system_fingerprint":%b,"choices":['
)
_PLAIN_BODY = (
    b'{"id":%b,"object":"chat.completion","created":%d,"model":%b,"system_fingerprint":%b,"choices":[%b],"usage":%b}'
)
_HAS_REASONING = re.compile(rb'"reasoning": *[^ n]')
_encode = msgspec.json.encode
_tree = msgspec.json.Decoder(JsonObject).decode
_objects = msgspec.json.Decoder(list[JsonObject]).decode
