"""Bad input gets a clear error in OpenAI's envelope that names the field, and harms nobody else."""

import json
import socket
from typing import Any

import pytest
from gateways import HELLO, Running, error_of

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": HELLO}, "model"),
        ({"model": "agent"}, "messages"),
        ({"model": 7, "messages": HELLO}, "model"),
        ({"model": "", "messages": HELLO}, "model"),
        ({"model": "a" * 300, "messages": HELLO}, "model"),
        ({"model": "agent", "messages": []}, "messages"),
        ({"model": "agent", "messages": "hi"}, "messages"),
        ({"model": "agent", "messages": ["hi"]}, "messages[0]"),
        ({"model": "agent", "messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"model": "agent", "messages": HELLO, "stream": "yes"}, "stream"),
        ({"model": "agent", "messages": HELLO, "n": 0}, "n"),
        ({"model": "agent", "messages": HELLO, "n": 10**6}, "n"),
        ({"model": "agent", "messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"model": "agent", "messages": HELLO, "tools": {}}, "tools"),
        ({"model": "agent", "messages": HELLO, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"model": "agent", "messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
        ({"model": "agent", "messages": HELLO, "use_beam_search": True}, "use_beam_search"),
        ({"model": "agent", "messages": HELLO, "echo": True}, "echo"),
        ({"model": "agent", "messages": HELLO, "prompt_logprobs": 0}, "prompt_logprobs"),
        ({"model": "agent", "messages": HELLO, "logprobs": True, "logprob_token_ids": [5]}, "logprob_token_ids"),
    ],
)
def test_wrong_fields_are_named(shared: Running, body: dict[str, Any], param: str) -> None:
    n_before = len(shared.engine.requests)
    with shared.client() as client:
        error = error_of(client.post(CHAT, json=body), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert param.partition("[")[0] in error["message"]
    assert len(shared.engine.requests) == n_before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"model": NaN}',
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 100_000,
        b"[]",
        b"null",
        b'"x"',
    ],
)
def test_malformed_json_is_a_400(shared: Running, body: bytes) -> None:
    with shared.client() as client:
        assert error_of(client.post(CHAT, content=body), 400)["code"] in {"invalid_json", "invalid_value"}
        assert shared.chat().status_code == 200


def test_a_field_repeated_goes_on_once(gateway: Running) -> None:
    body = b'{"model": "nobody", "model": "agent", "messages": [{"role": "user", "content": "x"}], "logprobs": false}'
    with gateway.client() as client:
        assert client.post(CHAT, content=body).status_code == 200
    assert gateway.engine.requests[-1]["model"] == "agent@v2"


@pytest.mark.parametrize(
    "model",
    ["nobody", "agent@v9", "agent@v", "agent@v-1", "nobody@v1", "theirs", "theirs@v0", "agent@v" + "9" * 200, "../x"],
)
def test_unknown_models_are_a_404_that_lists_what_exists(shared: Running, model: str) -> None:
    error = error_of(shared.chat(model=model), 404)
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "not_found_error")
    assert "agent, agent@v0, agent@v1, agent@v2, second" in error["message"]
    assert "theirs" not in error["message"].partition("there are")[2]


def test_a_model_of_another_tenant_does_not_exist(shared: Running) -> None:
    assert error_of(shared.chat("stranger"), 404)["code"] == "model_not_found"
    assert shared.chat("stranger", model="theirs").status_code == 200
    with shared.client("stranger") as client:
        assert {model["id"] for model in client.get("/v1/models").json()["data"]} == {"theirs", "theirs@v0", "base"}
        assert error_of(client.get("/v1/models/agent"), 404)["code"] == "model_not_found"


def test_a_limited_key_keeps_to_its_agents(shared: Running) -> None:
    assert shared.chat("limited").status_code == 200
    assert error_of(shared.chat("limited", model="second"), 403)["code"] == "model_not_allowed"
    assert error_of(shared.chat("limited", model="base"), 403)["code"] == "model_not_allowed"


def test_a_body_of_50_mb_is_a_413(gateway: Running) -> None:
    huge = json.dumps({"model": "agent", "messages": [{"role": "user", "content": "x" * 50_000_000}]}).encode()

    def in_pieces() -> Any:
        for at in range(0, len(huge), 2**20):
            yield huge[at : at + 2**20]

    with gateway.client() as client:
        for content in (huge, in_pieces()):
            assert error_of(client.post(CHAT, content=content), 413)["code"] == "request_too_large"
    assert gateway.engine.requests == []
    assert gateway.chat().status_code == 200


def test_a_declared_size_is_refused_before_the_body_is_sent(gateway: Running) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52428800\r\n\r\n")
        assert line.recv(64).startswith(b"HTTP/1.1 413")


def test_what_the_engine_objects_to_is_passed_on(gateway: Running) -> None:
    gateway.engine.replies = lambda body, choice: "never"
    # only the engine checks this type; the stub refuses any temperature that is no number
    error = error_of(gateway.chat(temperature=True), 400)
    assert error["param"] == "temperature"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("DELETE", "/v1/feedback", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/models/agent", 405),
    ]
    + [
        ("GET", path, 404)
        for path in ("/", "/v1", "/v1/chat/completions/", "/admin/agents", "/metrics", "/v1/load_lora_adapter")
    ],
)
def test_other_paths_and_methods(shared: Running, method: str, path: str, status: int) -> None:
    with shared.client() as client:
        response = client.request(method, path)
    error_of(response, status)
    assert ("allow" in response.headers) == (status == 405)
    assert response.headers["x-request-id"]


def test_a_bug_is_a_500_without_its_inside(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ValueError("secret detail")

    monkeypatch.setattr("burnish.server.gateway.exchange.resolve", explode)
    response = gateway.chat()
    error = error_of(response, 500)
    assert "secret" not in response.text
    assert response.headers["x-request-id"] in error["message"]
