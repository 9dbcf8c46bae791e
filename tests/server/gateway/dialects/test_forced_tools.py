"""A forced tool keeps to its schema: `strict` goes to the engine only if a call must come."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gateways import ENGINE_KEY, HELLO, Running, serve

from burnish.testing import StubEngine

PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1.50}}, "required": ["x"]}
NAMES = ("add", "free", "held", "null")
STRICT: dict[str, Any] = {"free": {"strict": False}, "held": {"strict": True}, "null": {"strict": None}, "add": {}}


def chat_tools() -> list[Any]:
    return [
        {"type": "function", "function": {"name": name, "parameters": PARAMETERS, **STRICT[name]}} for name in NAMES
    ]


def flat_tools() -> list[Any]:
    return [{"type": "function", "name": name, "parameters": PARAMETERS, **STRICT[name]} for name in NAMES]


def own_tools() -> list[Any]:
    return [{"name": name, "input_schema": PARAMETERS, **STRICT[name]} for name in NAMES]


def ask(gateway: Running, path: str, **body: Any) -> Any:
    with gateway.client() as client:
        response = client.post(path, json={"model": "agent", **body})
    assert response.status_code == 200, response.text
    return response.json()


def strict_of(body: Any) -> dict[str, Any]:
    """The `strict` of each tool that the engine got. Absent if the tool has none."""
    said = {tool["function"]["name"]: tool["function"] for tool in body["tools"]}
    assert all(function["parameters"] == PARAMETERS for function in said.values())
    return {name: function["strict"] for name, function in said.items() if function.get("strict") is not None}


ALL = {"add": True, "free": False, "held": True, "null": True}
FREELY = {"free": False, "held": True}  # unchanged


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, FREELY),
        ("auto", FREELY),
        ("none", FREELY),
        ("required", ALL),
        ({"type": "function", "function": {"name": "add"}}, FREELY | {"add": True}),
        ({"type": "function", "function": {"name": "free"}}, FREELY),
        ({"type": "function", "function": "add"}, FREELY),  # the engine explains the error
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chat(gateway: Running, choice: Any, expected: dict[str, Any], stream: bool) -> None:
    tools = chat_tools()
    gateway.chat(tools=tools, stream=stream, **({} if choice is None else {"tool_choice": choice}))
    assert strict_of(gateway.engine.requests[-1]) == expected
    (row,) = gateway.interactions
    assert list(row.tools) == tools  # recorded unchanged


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"held": True}),
        ("required", ALL),
        ({"type": "function", "name": "null"}, {"null": True, "free": False, "held": True}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}, {"add": True}),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "free"}]}, {}),
    ],
)
def test_responses(gateway: Running, choice: Any, expected: dict[str, Any]) -> None:
    ask(gateway, "/v1/responses", input="hi", tools=flat_tools(), tool_choice=choice)
    assert strict_of(gateway.engine.requests[-1]) == expected


def test_a_forced_custom_tool_gets_its_text(gateway: Running) -> None:
    custom = {"type": "custom", "name": "patch"}
    ask(gateway, "/v1/responses", input="hi", tools=[custom, {"type": "local_shell"}], tool_choice="required")
    assert [tool["function"]["strict"] for tool in gateway.engine.requests[-1]["tools"]] == [True, True]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, FREELY),
        ({"type": "any"}, ALL),
        ({"type": "tool", "name": "null"}, FREELY | {"null": True}),
    ],
)
def test_messages_and_their_count(gateway: Running, choice: Any, expected: dict[str, Any]) -> None:
    """The count is of the same prompt, because a template may show `strict`."""
    body = {"messages": HELLO, "tools": own_tools(), "tool_choice": choice}
    ask(gateway, "/v1/messages", max_tokens=9, **body)
    ask(gateway, "/v1/messages/count_tokens", **body)
    assert [strict_of(request) for request in gateway.engine.requests] == [expected, expected]


class Choosy(StubEngine):
    """Refuses a strict tool with a pattern in its schema after the stream has begun, as vLLM 0.32 does."""

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not any(tool["function"].get("strict") and "pattern" in json.dumps(tool) for tool in body["tools"]):
            return await super()._chat(request)
        self.requests.append(body)
        error = {"error": {"message": REFUSED, "type": "BadRequestError", "param": None, "code": 400}}
        if not body.get("stream"):
            return web.json_response(error, status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode())
        return response


@pytest.fixture
def choosy(tmp_path: Path) -> Any:
    with Choosy(api_key=ENGINE_KEY, loaded={"agent@v2": "/a/2"}) as stub, serve(tmp_path, stub) as running:
        yield running


REFUSED = "Invalid grammar specification: 'triggers'"
ODD = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(a)\\1"}}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_the_engine_cannot_take_is_not_enforced(choosy: Running, stream: bool) -> None:
    tools = [{"type": "function", "function": {"name": "odd", "parameters": ODD}}]
    reply = choosy.chat(tools=tools, tool_choice="required", stream=stream)
    assert reply.status_code == 200, reply.text
    assert [tool["function"].get("strict") for request in choosy.engine.requests for tool in request["tools"]] == [
        True,
        None,
    ]
    (row,) = choosy.interactions
    assert (row.quarantine, list(row.tools)) == (None, tools)


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_client_made_strict_is_refused_in_the_engines_words(choosy: Running, stream: bool) -> None:
    odd = {"name": "odd", "parameters": ODD, "strict": True}
    reply = choosy.chat(tools=[{"type": "function", "function": odd}], tool_choice="required", stream=stream)
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, REFUSED)
    assert len(choosy.engine.requests) == 1


def test_what_is_wrong_in_any_case_is_refused(choosy: Running) -> None:
    tools = [{"type": "function", "function": {"name": "odd", "parameters": PARAMETERS}}]
    reply = choosy.chat(tools=tools, tool_choice="required", temperature="hot")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "temperature")
    assert choosy.interactions == []
