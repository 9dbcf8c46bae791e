"""Request bodies: the JSON schemas of the types that read them, and schemas by hand for parts that are read separately.

Fields that Burnish does not read go to the engine or are named as ignored. So a body may hold more than is listed.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from burnish.server.gateway import embeddings
from burnish.server.gateway.access import user_tokens
from burnish.server.gateway.dialects import chat, completions
from burnish.server.gateway.dialects.messages import request as messages
from burnish.server.gateway.dialects.responses import request_fields as responses
from burnish.server.gateway.feedback import parse, vote_tokens

Tree = dict[str, Any]
_REFUSED = frozenset(
    {
        *("use_beam_search", "echo", "prompt_logprobs", "logprob_token_ids"),
        *("previous_response_id", "conversation", "background", "prompt"),
    }
)
_TEXT: Tree = {"type": "string"}
_OBJECT: Tree = {"type": "object"}


def _some(items: Tree) -> Tree:
    return {"type": "array", "items": items, "minItems": 1}


def _object(required: Collection[str] = (), **properties: Tree) -> Tree:
    return {"type": "object", "required": [*required], "properties": properties}


def _or_null(*kinds: Tree) -> Tree:
    return {"anyOf": [*kinds, {"type": "null"}]}


def _one_of(*known: str) -> Tree:
    """Any text. These values have a meaning."""
    return {"anyOf": [{"enum": [*known]}, _TEXT]}


_IDS = _some({"type": "integer", "minimum": 0})
_PROMPT: Tree = {"anyOf": [_TEXT, _some(_TEXT), _IDS, _some(_IDS)]}
_CHAT_MESSAGE = _object(["role"], role={"type": "string", "examples": ["user"]}, content={"examples": ["hello"]})
_FUNCTION = _object(function=_or_null(_object(strict=_or_null({"type": "boolean"}))))
_SOURCE = _object(
    ["type"],
    type=_one_of("base64", "url", "text", "content"),
    media_type=_or_null(_TEXT),
    data=_or_null(_TEXT),
    url=_or_null(_TEXT),
)
_BLOCK = _object(
    ["type"],
    type=_one_of("text", "image", "document", "search_result", "tool_use", "tool_result", "thinking"),
    text=_or_null(_TEXT),
    thinking=_or_null(_TEXT),
    id=_or_null(_TEXT),
    name=_or_null(_TEXT),
    tool_use_id=_or_null(_TEXT),
    input=_OBJECT,
    content={
        "anyOf": [_TEXT, {"type": "array", "items": _object(["type"], type=_one_of("text", "image"), text=_TEXT)}]
    },
    source=_SOURCE,
)
_CONTENT: Tree = {"anyOf": [_TEXT, {"type": "array", "items": _BLOCK}]}
_ROLES = {"type": "string", "enum": ["user", "assistant", "system"]}
_MESSAGES: Tree = {
    "messages": _some(_object(["role", "content"], role=_ROLES, content=_CONTENT)),
    "system": _or_null(_CONTENT),
    "tools": _or_null(
        {"type": "array", "items": _object(name=_or_null({"type": "string", "minLength": 1}), input_schema=_OBJECT)}
    ),
}
_PART = _object(
    ["type"], type=_one_of("input_text", "output_text", "refusal", "input_image"), text=_TEXT, image_url=_TEXT
)
_ITEM = _object(
    type=_one_of(
        *(
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
        ),
        *("local_shell_call", "local_shell_call_output"),
    ),
    role=_one_of("user", "assistant", "system", "developer"),
    content={"anyOf": [_TEXT, {"type": "array", "items": _PART}]},
    id=_TEXT,
    call_id=_TEXT,
    name=_TEXT,
    arguments=_TEXT,
    input=_TEXT,
    action=_OBJECT,
    output={"anyOf": [_TEXT, {"type": "array", "items": _PART}]},
    encrypted_content=_or_null(_TEXT),
)
_TOOL = _object(
    ["type"],
    type=_one_of("function", "custom", "local_shell"),
    name=_or_null(_TEXT),
    description=_or_null(_TEXT),
    parameters=_or_null(_OBJECT),
)
_KINDS: dict[str, tuple[type[msgspec.Struct], Tree, tuple[str, ...]]] = {
    "ChatRequest": (
        chat.Fields,
        {"messages": _some(_CHAT_MESSAGE), "tools": _or_null({"type": "array", "items": _FUNCTION})},
        ("messages",),
    ),
    "CompletionRequest": (completions.Fields, {"prompt": _PROMPT}, ("prompt",)),
    "ResponseRequest": (
        responses.Fields,
        {
            "input": {"anyOf": [_TEXT, {"type": "array", "items": _ITEM}]},
            "tools": _or_null({"type": "array", "items": _TOOL}),
        },
        ("input",),
    ),
    "MessageRequest": (messages.Fields, _MESSAGES, ("max_tokens",)),
    "CountRequest": (messages.Fields, _MESSAGES, ()),
    "EmbeddingRequest": (embeddings.Fields, {"input": _PROMPT}, ("input",)),
    "Opinion": (parse.Opinion, {}, ()),
    "Opinions": (parse.Opinions, {}, ()),
    "TokenWish": (vote_tokens.Wish, {}, ()),
    "UserTokenWish": (user_tokens.UserWish, {}, ()),
}


def schemas() -> dict[str, Tree]:
    """Every request's schema by name, and the schemas of its parts, with a dot in the name."""
    found: dict[str, Tree] = {}
    for name, (kind, by_hand, required) in _KINDS.items():
        found |= _schemas_of(name, kind, by_hand, required)
    return found


def _schemas_of(name: str, kind: type[msgspec.Struct], by_hand: Tree, required: Collection[str]) -> dict[str, Tree]:
    """The schema of `kind` as `name`: without refused fields, and with those `by_hand` in their place."""
    read = [field for field in msgspec.structs.fields(kind) if field.name not in (_REFUSED | by_hand.keys())]
    shape = msgspec.defstruct(name, [(field.name, field.type) for field in read])
    _, parts = msgspec.json.schema_components([shape], ref_template=f"#/components/schemas/{name}.{{name}}")
    whole = parts.pop(name)
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    whole["required"] = list(dict.fromkeys([*needed, *required]))
    whole["properties"] = {**whole["properties"], **by_hand}
    whole["properties"].get("model", {}).setdefault("examples", ["agent"])
    if getattr(kind.__struct_config__, "forbid_unknown_fields", False):
        whole["additionalProperties"] = False
    for part in (whole, *parts.values()):
        part.pop("title", None)
    return {name: whole, **{f"{name}.{part}": schema for part, schema in parts.items()}}


def body(name: str) -> Tree:
    """An operation's `requestBody`."""
    return {"required": True, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


_SAYS = {
    "x-burnish-train": "`false` keeps this turn out of training.",
    "x-burnish-record": "`false` keeps this turn, or this feedback, out of the journal, and so out of training.",
    "x-burnish-user": "The end user. It is believed if the key has the scope `users`.",
    "x-session-id": "The session that this turn belongs to; else it is found from the messages.",
    "x-turn-type": "`main` or `side`.",
    "x-session-done": "`1`, `true`, `yes` or `on`: the last turn of its session.",
    "traceparent": "The client's span, as W3C Trace Context writes it.",
}
HEADERS: dict[str, Tree] = {
    name: {"name": name, "in": "header", "required": False, "description": text, "schema": _TEXT}
    for name, text in _SAYS.items()
}
