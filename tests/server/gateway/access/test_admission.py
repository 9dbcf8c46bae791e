"""Who asks is settled before anything of a body is read, on every route, and so are size, rate and concurrency."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateways import ENGINE_KEY, HELLO, Running, error_of, serve, write_table

from burnish import serving_table
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.keys import Scope, mint
from burnish.server.gateway.access import limits
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine

CHAT = "/v1/chat/completions"
BODIES: dict[str, Any] = {
    CHAT: {"model": "agent", "messages": HELLO},
    "/v1/completions": {"model": "agent", "prompt": "hello"},
    "/v1/responses": {"model": "agent", "input": "hello"},
    "/v1/messages": {"model": "agent", "max_tokens": 9, "messages": HELLO},
    "/v1/messages/count_tokens": {"model": "agent", "messages": HELLO},
    "/v1/embeddings": {"model": "agent", "input": "hello"},
    "/v1/feedback": {"target": "chatcmpl-1", "rating": "up"},
    "/v1/feedback/batch": {"feedback": [{"target": "chatcmpl-1", "rating": "up"}]},
    "/v1/feedback/tokens": {"target": "chatcmpl-1"},
    "/admin/agents": {"name": "third"},
    "/admin/agents/agent/promote": {"version": 1},
    "/admin/agents/agent/versions/import": {},
}
SCOPES = [Scope.INFERENCE, Scope.FEEDBACK, Scope.OPERATOR]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway with all its routes that talks to nobody without a key."""
    folder = tmp_path_factory.mktemp("closed")
    settings = Settings(state_dir=folder)
    journal = prepare(settings)
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with stub, serve(folder, stub, fallback=admin_app(settings, journal), open_inference=False) as running:
        yield running
    journal.close()


def raw(gateway: Running, head: str, body: bytes = b"") -> bytes:
    """The first bytes of the answer to a request that is never finished."""
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as line:
        line.sendall(f"{head}\r\nhost: localhost\r\n".encode() + body)
        return line.recv(4096)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("key", ["", "authorization: Bearer sk-burnish-wrong\r\n"])
def test_a_stranger_is_refused_before_the_body_is_sent(closed: Running, path: str, key: str) -> None:
    answer = raw(closed, f"POST {path} HTTP/1.1", f"{key}content-length: 1000\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 401"), answer


@pytest.mark.parametrize("path", ["/nowhere", "/docs", "/openapi.json", "/healthz", "/readyz"])
def test_no_body_is_read_where_no_key_is_asked_for(closed: Running, path: str) -> None:
    for method in ("GET", "POST"):
        answer = raw(closed, f"{method} {path} HTTP/1.1", b"content-length: 1000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 "), answer


@pytest.mark.parametrize("path", [path for path in BODIES if not path.endswith("/import")])
@pytest.mark.parametrize("is_declared", [True, False])
def test_every_body_has_a_longest_size(closed: Running, path: str, is_declared: bool) -> None:
    with closed.client("admin") as client:
        body = b'{"a": "' + b"x" * (33 * 2**20) + b'"}'
        content: Any = body if is_declared else (body[at : at + 2**20] for at in range(0, len(body), 2**20))
        answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"].get("code") in ("request_too_large", None)  # Anthropic's envelope has no code


def test_a_key_without_the_scope_sends_no_body_to_the_admin_api(closed: Running) -> None:
    for key in ("talker", "voter"):
        head = f"authorization: Bearer {closed.secrets[key]}\r\ncontent-length: 1000\r\n\r\n"
        assert raw(closed, "POST /admin/agents HTTP/1.1", head.encode()).startswith(b"HTTP/1.1 403")


def limited(gateway: Running, **limits: int) -> httpx.Client:
    secret, key = mint(SCOPES, **limits)
    keys = {**serving_table.watch(gateway.settings.run_dir / "routes.json").current().keys, key.digest: key}
    write_table(gateway.settings, (gateway.engine.url,), keys)
    return gateway.client(secret)


@pytest.mark.parametrize("path", [path for path in BODIES if not path.startswith("/admin/")])
def test_a_keys_rate_holds_on_every_route(closed: Running, path: str) -> None:
    with limited(closed, requests_per_minute=1) as client:
        assert client.post(path, json=BODIES[path]).status_code < 300
        assert client.post(path, json=BODIES[path]).status_code == 429
        assert client.get("/v1/models").status_code == 429
        assert client.get("/admin/agents").status_code == 429
        assert client.get("/v1/feedback?target=x").status_code == 429
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/messages/count_tokens", "/v1/embeddings", "/admin/agents"])
def test_a_keys_requests_at_a_time_hold_on_every_route(closed: Running, path: str) -> None:
    with limited(closed, max_concurrent=1) as client:
        closed.engine.token_delay = 0.2
        first = threading.Thread(target=client.post, args=[CHAT], kwargs={"json": BODIES[CHAT]})
        n_before = len(closed.engine.requests)
        first.start()
        while len(closed.engine.requests) == n_before:
            pass
        assert client.post(path, json=BODIES[path]).status_code == 429
        first.join()
        closed.engine.token_delay = 0.0
        assert client.post(path, json=BODIES[path]).status_code < 300


def test_a_vote_token_shares_the_limits_of_its_key(closed: Running) -> None:
    with limited(closed, requests_per_minute=2) as client:
        token = client.post("/v1/feedback/tokens", json={"target": "chatcmpl-9"}).json()["token"]
        vote = {"target": "chatcmpl-9", "rating": "up"}
        with closed.client(token) as page:
            assert page.post("/v1/feedback", json=vote).status_code == 202
            assert error_of(page.post("/v1/feedback", json=vote), 429)["code"] == "rate_limit_exceeded"


def test_a_process_that_is_full_of_replies_still_rolls_back(
    tmp_path: Path, engine: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.Limits.__init__, "__defaults__", (1,))
    settings = Settings(state_dir=tmp_path)
    journal = prepare(settings)
    engine.token_delay = 0.2
    with serve(tmp_path, engine, fallback=admin_app(settings, journal)) as gateway, gateway.client("admin") as client:
        first = threading.Thread(target=gateway.chat)
        first.start()
        while not engine.requests:
            pass
        assert error_of(gateway.chat(), 503)["code"] == "overloaded"
        assert client.get("/admin/agents").status_code == 200
        first.join()
    journal.close()
