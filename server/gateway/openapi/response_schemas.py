"""Answers: their shapes, both kinds of error, and the headers that they carry."""

from typing import Any

Tree = dict[str, Any]
_TEXT: Tree = {"type": "string"}
_TEXT_OR_NULL: Tree = {"type": ["string", "null"]}
_COUNT: Tree = {"type": "integer", "minimum": 0}
_LIST: Tree = {"type": "array"}


def _object(*required: str, **properties: Tree) -> Tree:
    return {"type": "object", "required": list(required), "properties": properties}


def _exactly(**properties: Tree) -> Tree:
    """An object with exactly these fields."""
    return {**_object(*properties, **properties), "additionalProperties": False}


def _is(value: str) -> Tree:
    return {"const": value}


_LIMIT: Tree = {"type": ["integer", "null"], "minimum": 1, "description": "`engine.max_model_len`, where it is set."}
_MODEL = {
    **_exactly(
        **{
            "id": _TEXT,
            "object": _is("model"),
            "created": _COUNT,
            "owned_by": _TEXT,
            "root": _TEXT,
            "parent": _TEXT_OR_NULL,
        },
        **{"type": _is("model"), "display_name": _TEXT, "created_at": {**_TEXT, "format": "date-time"}},
        **{"lifecycle": _is("active"), "max_input_tokens": _LIMIT, "max_tokens": _LIMIT},
    ),
    "description": "A model, with OpenAI's fields and Anthropic's.",
}
SCHEMAS: dict[str, Tree] = {
    "Chat": _object(
        *("id", "object", "created", "model", "choices", "usage", "system_fingerprint"),
        id=_TEXT,
        object=_is("chat.completion"),
        created=_COUNT,
        model={**_TEXT, "description": "The version that spoke, such as `agent@v3`."},
        system_fingerprint=_TEXT,
        choices={
            "type": "array",
            "minItems": 1,
            "items": _object("index", "message", "finish_reason", index=_COUNT, message=_object("role", "content")),
        },
        usage={"type": "object"},
    ),
    "Completion": _object(
        *("id", "object", "created", "model", "choices", "usage", "system_fingerprint"),
        id=_TEXT,
        object=_is("text_completion"),
        created=_COUNT,
        model=_TEXT,
        system_fingerprint=_TEXT,
        choices={
            "type": "array",
            "minItems": 1,
            "items": _object("index", "text", "finish_reason", index=_COUNT, text=_TEXT),
        },
        usage={"type": "object"},
    ),
    "Response": _object(
        *("id", "object", "created_at", "model", "status", "output"),
        id=_TEXT,
        object=_is("response"),
        model=_TEXT,
        status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
        output={"type": "array", "items": _object("id", "type", id=_TEXT, type=_TEXT)},
    ),
    "Message": _object(
        *("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"),
        id=_TEXT,
        type=_is("message"),
        role=_is("assistant"),
        model=_TEXT,
        content={"type": "array", "items": _object("type", type={"enum": ["text", "thinking", "tool_use"]})},
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        stop_sequence=_TEXT_OR_NULL,
        usage=_object("input_tokens", "output_tokens", input_tokens=_COUNT, output_tokens=_COUNT),
    ),
    "TokenCount": _exactly(input_tokens=_COUNT),
    "Embeddings": _object(
        *("object", "model", "data", "usage"),
        object=_is("list"),
        model={**_TEXT, "description": "The name that the request used."},
        data={"type": "array", "items": _object("index", "object", "embedding", index=_COUNT, object=_is("embedding"))},
        usage={"type": "object"},
    ),
    "Models": _exactly(
        object=_is("list"),
        data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
        has_more={"type": "boolean"},
        first_id=_TEXT_OR_NULL,
        last_id=_TEXT_OR_NULL,
    ),
    "Model": _MODEL,
    "Accepted": _exactly(
        id=_TEXT,
        target=_TEXT,
        about={"enum": ["response", "turn", "session"]},
        status={
            "enum": ["pending", "unrecorded"],
            "description": "`unrecorded`: an opt-out holds, nothing is stored.",
        },
    ),
    "AcceptedBatch": _exactly(feedback={"type": "array", "items": {"$ref": "#/components/schemas/Accepted"}}),
    "VoteToken": _exactly(token=_TEXT, expires_at={**_COUNT, "description": "Seconds since the epoch."}),
    "UserToken": _exactly(token=_TEXT, user=_TEXT, expires_at={**_COUNT, "description": "Seconds since the epoch."}),
    "Health": _exactly(status=_is("ok")),
    "Readiness": _exactly(status={"enum": ["ready", "not ready"]}, warnings={"type": "array", "items": _TEXT}),
    "Error": _exactly(
        error=_exactly(message={**_TEXT, "minLength": 1}, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
    ),
    "MessageError": _exactly(
        type=_is("error"), error=_exactly(type=_TEXT, message={**_TEXT, "minLength": 1}), request_id=_TEXT
    ),
}
_SAYS = {
    "x-request-id": "This request, in the logs too.",
    "x-burnish-version": "The version that spoke.",
    "x-burnish-session": "The session that the request named.",
    "x-burnish-ignored": "What was sent and has no effect here, by name.",
    "retry-after": "Seconds after which to ask again.",
    "www-authenticate": "How to say who you are.",
    "allow": "The methods that there are.",
}
HEADERS: dict[str, Tree] = {name: {"description": text, "schema": _TEXT} for name, text in _SAYS.items()}
_MEANINGS = {
    "400": "The body is not JSON, a field is wrong, or the engine objects to it.",
    "401": "No key where one is needed, or an unknown one; a token that does not count any more.",
    "403": "The key may not do this, or the caller comes from a foreign host or origin.",
    "404": "No such model, agent, version, feedback or path.",
    "405": "Another method is needed; see `allow`.",
    "409": "Another version is live than was expected.",
    "413": "The body is larger than 32 MiB.",
    "429": "The key's share is used up.",
    "500": "A defect; the message holds the request id to look for in the log.",
    "503": "No engine answers, or all are full.",
    "529": "No engine answers, or all are full.",
}
_SPECIAL = {"401": "www-authenticate", "405": "allow", "429": "retry-after", "503": "retry-after", "529": "retry-after"}


def _header_refs(*names: str) -> Tree:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _error(status: str, schema: str) -> Tree:
    special = [_SPECIAL[status]] if status in _SPECIAL else []
    return {
        "description": _MEANINGS[status],
        "headers": _header_refs("x-request-id", *special),
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


ERRORS: dict[str, Tree] = {
    **{f"Error{status}": _error(status, "Error") for status in _MEANINGS if status != "529"},
    **{f"MessageError{status}": _error(status, "MessageError") for status in _MEANINGS if status not in ("409", "503")},
}


def errors(*statuses: str, kind: str = "Error") -> Tree:
    """The responses of these statuses; `kind` names the dialect's envelope."""
    return {status: {"$ref": f"#/components/responses/{kind}{status}"} for status in statuses}


def whole(schema: str, *headers: str) -> Tree:
    """A JSON answer."""
    return {
        "description": "The answer.",
        "headers": _header_refs("x-request-id", *headers),
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def reply(schema: str) -> Tree:
    """The model's reply: whole, or server-sent events if `stream` is true."""
    answer = whole(schema, "x-burnish-version", "x-burnish-session", "x-burnish-ignored")
    answer["description"] = "The reply: one object, or with `stream: true` the dialect's events as they are sampled."
    answer["content"]["text/event-stream"] = {}  # OpenAPI 3.1 cannot describe single events
    return answer
