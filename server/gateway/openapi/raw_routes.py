"""The raw routes by path and method: scope, body and answer."""

from typing import Any

from burnish.server.gateway import embeddings
from burnish.server.gateway.access import token_route
from burnish.server.gateway.call import CHAT
from burnish.server.gateway.dialects import completions, messages, responses
from burnish.server.gateway.dialects.messages import count_tokens
from burnish.server.gateway.feedback import accept
from burnish.server.gateway.openapi import request_schemas
from burnish.server.gateway.openapi.response_schemas import errors, reply, whole
from burnish.server.gateway.routing import MAX_PAGE

Tree = dict[str, Any]
SCHEMES: dict[str, Tree] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key: `sk-burnish-…`."},
    "x-api-key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same key, as Anthropic's clients send it.",
    },
}
ANY_KEY: list[Tree] = [{"bearer": []}, {"x-api-key": []}]
_KEY_OR_NONE: list[Tree] = [
    *ANY_KEY,
    {},
]  # a gateway on loopback with `gateway.open_inference` needs no key for talking
_ASKED = ("400", "401", "403", "404", "413", "429", "500")
_SAID = [{"$ref": f"#/components/parameters/{name}"} for name in request_schemas.HEADERS]
_NAME: Tree = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "A model name: `agent`, `agent@v3` or the base's own.",
    "schema": {"type": "string", "minLength": 1, "examples": ["agent"]},
}
_PAGE: list[Tree] = [
    {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
    for name, text, schema in (
        ("limit", "So many at most; all without it.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}),
        ("after_id", "Only what comes after this model.", {"type": "string"}),
        ("before_id", "Only what comes before this model.", {"type": "string"}),
    )
]


def paths() -> dict[str, Tree]:
    """The document's paths, except the admin routes."""
    return {
        CHAT: {"post": _reply("chat", "One reply in chat form.", "ChatRequest", "Chat")},
        completions.PATH: {"post": _reply("complete", "A text's continuation.", "CompletionRequest", "Completion")},
        responses.PATH: {"post": _reply("respond", "One reply as a Response.", "ResponseRequest", "Response")},
        messages.PATH: {
            "post": _reply("message", "One reply as Anthropic's Message.", "MessageRequest", "Message", _ANTHROPIC)
        },
        count_tokens.COUNT_PATH: {
            "post": _operation(
                "count_tokens",
                "How long a Messages prompt is, by the engine's tokenizer.",
                {"200": whole("TokenCount"), **_ANTHROPIC},
                requestBody=request_schemas.body("CountRequest"),
            )
        },
        embeddings.PATH: {
            "post": _operation(
                "embed",
                "Vectors, where the engine's model has them.",
                {"200": whole("Embeddings"), **_OPENAI},
                requestBody=request_schemas.body("EmbeddingRequest"),
            )
        },
        accept.PATH: {
            "post": _operation(
                "feedback",
                "What somebody said about a reply, a request or a session.",
                {"202": whole("Accepted"), **errors("400", "401", "403", "413", "500", "503")},
                requestBody=request_schemas.body("Opinion"),
            )
        },
        accept.BATCH_PATH: {
            "post": _operation(
                "feedback_batch",
                "Up to 1,000 opinions; all of it is checked before any is written.",
                {"202": whole("AcceptedBatch"), **errors("400", "401", "403", "413", "500", "503")},
                requestBody=request_schemas.body("Opinions"),
            )
        },
        accept.TOKENS_PATH: {
            "post": _operation(
                "feedback_token",
                "What a page needs to say one thing about one target without a key.",
                {"200": whole("VoteToken"), **errors("400", "401", "403", "413", "500")},
                requestBody=request_schemas.body("TokenWish"),
                security=ANY_KEY,
            )
        },
        token_route.PATH: {
            "post": _operation(
                "user_token",
                "What a program needs to talk and give feedback as one user of a back end.",
                {"200": whole("UserToken"), **errors("400", "401", "403", "413", "500")},
                requestBody=request_schemas.body("UserTokenWish"),
                security=ANY_KEY,
            )
        },
        "/v1/models": {
            "get": _operation(
                "list_models",
                "The model names that this key may use.",
                {"200": whole("Models"), **errors("400", "401", "403", "500")},
                parameters=_PAGE,
            )
        },
        "/v1/models/{id}": {
            "parameters": [_NAME],
            "get": _operation(
                "show_model", "One model.", {"200": whole("Model"), **errors("401", "403", "404", "500")}
            ),
        },
        "/healthz": {"get": _operation("healthz", "Whether the process lives.", {"200": whole("Health")}, security=[])},
        "/readyz": {
            "get": _operation(
                "readyz",
                "Whether an engine answers.",
                {"200": whole("Readiness"), "503": {**whole("Readiness"), "description": "No engine answers."}},
                security=[],
            )
        },
    }


def _operation(name: str, summary: str, answers: Tree, **more: Any) -> Tree:
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["v1"],
        "security": _KEY_OR_NONE,
        "responses": answers,
        **more,
    }


def _reply(name: str, summary: str, request: str, answer: str, failures: Tree | None = None) -> Tree:
    answers = {"200": reply(answer), **(failures or _OPENAI)}
    return _operation(name, summary, answers, parameters=_SAID, requestBody=request_schemas.body(request))


_OPENAI = errors(*_ASKED, "503")
_ANTHROPIC = errors(*_ASKED, "529", kind="MessageError")
