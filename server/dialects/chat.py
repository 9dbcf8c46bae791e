"""`/v1/chat/completions`: relayed field by field as the engine writes it, stripped of what the client did not ask for."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from server import envelope
from server.call import Call, JsonObject, Reply
from server.chunk import Chunk
from server.dialects import fields as common
from server.dialects.fields import TRUE, Common

NULL = msgspec.Raw(b"null")
DONE = b"data: [DONE]\n\n"


class _Message(msgspec.Struct, gc=False):
    """What a message must have; the engine looks at the rest."""

    role: str


class _ToolFunction(msgspec.Struct, gc=False):
    strict: bool | None = None


class _Tool(msgspec.Struct, gc=False):
    function: _ToolFunction | None = None


class Fields(Common):
    """The fields of a chat completion that Burnish reads, but for `messages` and `tools`."""

    logprobs: bool | None = None
    top_logprobs: int | None = None
    include_reasoning: bool | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


_BIG = {
    "messages": msgspec.json.Decoder(Annotated[list[_Message], msgspec.Meta(min_length=1)]),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
}


def parse(body: bytes) -> Call:
    """The call in a chat completion's body; raises RequestError naming the field at fault."""
    fields, raw, checked = common.parse(body, Fields, _BIG)
    if "messages" not in raw:
        raise RequestError("messages: missing required field `messages`", param="messages", code="invalid_value")
    if fields.top_logprobs and not fields.logprobs:
        raise RequestError("top_logprobs: needs `logprobs: true`", param="top_logprobs", code="invalid_value")
    tools = checked.get("tools")
    return Call(
        model=fields.model,
        is_stream=bool(fields.stream),
        body=_for_engine(raw, fields),
        messages=raw["messages"],
        tools=raw["tools"] if tools else None,
        sampling=common.sampling_of(fields, is_constrained=_is_constrained(fields, raw, tools or [])),
        n=fields.n or 1,
        user=fields.user,
        said=common.said_of(fields),
        render=lambda model, request_id: ChatRenderer(fields, model),
    )


def _for_engine(raw: JsonObject, fields: Fields) -> JsonObject:
    body = {name: value for name, value in raw.items() if name not in common.DROPPED and name != "model"}
    body["return_token_ids"] = body["logprobs"] = TRUE
    if fields.include_reasoning is False:  # vLLM would withhold ids and log-probs too; we strip the text ourselves
        body["include_reasoning"] = TRUE
    return body


def _is_constrained(fields: Fields, raw: JsonObject, tools: list[_Tool]) -> bool:
    """True where a grammar masks the logits; vLLM adds one for strict tools and for single calls as well."""
    if common.is_grammar(fields, raw):
        return True
    if not tools or fields.tool_choice == "none":
        return False
    is_auto = fields.tool_choice in (None, "auto")
    return not is_auto or fields.parallel_tool_calls is False or any(tool.function and tool.function.strict for tool in tools)


class ChatRenderer:
    """Takes out of each chunk what was added for the record, and leaves all else as the engine wrote it."""

    def __init__(self, fields: Fields, model: str) -> None:
        self._name = msgspec.Raw(msgspec.json.encode(model))
        self._wants_ids = bool(fields.return_token_ids)
        self._wants_usage = fields.wants_usage
        self._hides_reasoning = fields.include_reasoning is False
        self._wants_logprobs = bool(fields.logprobs) and not self._hides_reasoning

    def response_id(self, engine_id: str) -> str:
        return engine_id

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        tree = _tree(data)
        if not self._wants_usage:
            tree.pop("usage", None)
        if not chunk.choices and "usage" not in tree:
            return b""
        is_needed = self._strip(tree, chunk, "delta") or "usage" in tree or self._wants_ids
        return b"data: " + msgspec.json.encode(tree) + b"\n\n" if is_needed else b""

    def end(self) -> bytes:
        return DONE

    def whole(self, data: bytes, chunk: Chunk) -> bytes:
        tree = _tree(data)
        self._strip(tree, chunk, "message")
        return msgspec.json.encode(tree)

    def _strip(self, tree: JsonObject, chunk: Chunk, piece_key: str) -> bool:
        """Make the engine's answer ours; False where nothing is left of it that the client asked for."""
        tree["model"] = tree["system_fingerprint"] = self._name
        if not self._wants_ids:
            tree.pop("prompt_token_ids", None)
        if not chunk.choices:
            return False
        is_needed = False
        choices = _choices(tree["choices"])
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
        """Harnesses read `reasoning` or `reasoning_content`: both are given, or neither where the client wants none."""
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
        return envelope.reply_to(error, request_id)

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        return envelope.frame_of(error, request_id)


_EMPTY = msgspec.Raw(b"{}")
_tree = msgspec.json.Decoder(JsonObject).decode
_choices = msgspec.json.Decoder(list[JsonObject]).decode
