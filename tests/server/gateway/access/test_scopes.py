"""Scopes of keys: an agent with only its inference key cannot vote as a user, administer, or reach the engine."""

import os
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException
from gateways import ENGINE_KEY, HELLO, Running, error_of, serve
from pydantic import BaseModel

from benchmarks.security.attacks.stand import connected
from burnish.config import Gateway, Settings
from burnish.errors import ConfigError, Conflict
from burnish.keys import Scope
from burnish.records import FeedbackSource, id_without_words
from burnish.server import peer
from burnish.server.gateway.access import host_guard
from burnish.server.gateway.access.keyring import Caller, Holder
from burnish.server.gateway.access.need import Reach, need
from burnish.server.gateway.http.error_envelope import install
from burnish.server.gateway.process import check_bind
from burnish.testing import StubEngine

ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/feedback"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/agent"),
]
VOTE = {"target": "chatcmpl-1", "rating": "up"}


def vote(gateway: Running, key: str | None, **body: Any) -> httpx.Response:
    with gateway.client(key) as client:
        return client.post("/v1/feedback", json={"target": "chatcmpl-1", **body})


@pytest.mark.parametrize(
    ("key", "source"), [("voter", "user"), ("admin", "user"), ("talker", "harness"), (None, "harness")]
)
def test_the_key_decides_whose_word_feedback_is(gateway: Running, key: str | None, source: str) -> None:
    response = vote(gateway, key, rating="up", id="once")
    assert response.status_code == 202
    (row,) = gateway.feedback
    assert response.json() == {"id": row.feedback_id, "target": "chatcmpl-1", "about": "response", "status": "pending"}
    assert (row.source, row.rating, row.tenant) == (FeedbackSource(source), 1.0, "default")
    assert row.feedback_id == id_without_words(f"{row.key_id}:once")


@pytest.mark.parametrize("extra", [{"source": "user"}, {"key_id": "x"}, {"tenant": "other"}, {"feedback_id": "x"}])
def test_the_body_cannot_claim_to_be_a_user(gateway: Running, extra: dict[str, str]) -> None:
    error_of(vote(gateway, "talker", rating="up", **extra), 400)
    assert gateway.feedback == []


@pytest.mark.parametrize("header", ["x-burnish-source", "x-scope", "x-forwarded-user", "x-api-key"])
def test_no_header_makes_a_user(gateway: Running, header: str) -> None:
    with gateway.client("talker") as client:
        client.post("/v1/feedback", json=VOTE, headers={header: gateway.secrets["admin"]})
    assert [row.source for row in gateway.feedback] == [FeedbackSource.HARNESS]


def test_feedback_of_another_key_is_not_overwritten(gateway: Running) -> None:
    for key, rating in (("voter", "down"), ("talker", "up")):
        vote(gateway, key, rating=rating, id="same")
    assert len({row.feedback_id for row in gateway.feedback}) == 2


@pytest.mark.parametrize(
    ("given", "rating"),
    [("up", 1.0), ("down", -1.0), (True, 1.0), (False, -1.0), (0.5, 0.5), (-1, -1.0), (0, 0.0), (None, None)],
)
def test_ratings(gateway: Running, given: Any, rating: float | None) -> None:
    assert vote(gateway, "voter", rating=given, comment="because", correction="better").status_code == 202
    (row,) = gateway.feedback
    assert (row.rating, row.comment, row.correction) == (rating, "because", "better")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rating": "great"}, "rating"),
        ({"rating": 1.5}, "rating"),
        ({"rating": 1e400}, "rating"),
        ({"rating": []}, "rating"),
        ({}, None),
        ({"comment": ""}, None),
        ({"comment": 7}, "comment"),
        ({"rating": "up", "target": ""}, "target"),
        ({"rating": "up", "target": None}, "target"),
        ({"rating": "up", "thumbs": 1}, None),
    ],
)
def test_feedback_that_says_nothing_clear_is_a_400(gateway: Running, body: dict[str, Any], param: str | None) -> None:
    text = str({"target": "t", **body}).replace("'", '"').replace("None", "null").replace("inf", "1e400")
    with gateway.client("voter") as client:
        assert error_of(client.post("/v1/feedback", content=text), 400)["param"] == param
        error_of(client.post("/v1/feedback", content=b"{"), 400)
    assert gateway.feedback == []


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "header", ["Bearer sk-burnish-wrong", "Basic YTpi", "sk-burnish-x", f"Bearer {ENGINE_KEY}", "Bearer \xe9"]
)
def test_an_unknown_key_is_refused_even_where_none_is_needed(
    shared: Running, method: str, path: str, header: str
) -> None:
    with shared.client() as client:
        response = client.request(method, path, json=VOTE, headers={"authorization": header.encode("latin-1")})  # type: ignore[dict-item]
    assert error_of(response, 401)["type"] == "authentication_error"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[1] != "/v1/feedback"])
def test_a_voter_cannot_talk(shared: Running, method: str, path: str) -> None:
    with shared.client("voter") as client:
        assert error_of(client.request(method, path, json={}), 403)["type"] == "permission_error"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_open_inference_every_route_needs_a_key(
    tmp_path: Path, engine: StubEngine, method: str, path: str
) -> None:
    with serve(tmp_path, engine, open_inference=False) as gateway, gateway.client() as client:
        assert error_of(client.request(method, path, json={}), 401)["code"] == "missing_api_key"


class Body(BaseModel):
    number: int


def admin(settings: Settings) -> FastAPI:
    app = FastAPI()
    install(app)
    may_change = Depends(Holder(settings, need(Reach.NOTHING, Scope.ADMIN)))

    @app.post("/admin/echo")
    async def echo(body: Body, caller: Caller = may_change) -> dict[str, Any]:
        if body.number == 9:
            raise Conflict("expected version 8 to be live, found 7", code="lost_race")
        if body.number == 7:
            raise ValueError("secret detail")
        if body.number == 8:
            raise HTTPException(404, "no such thing")
        return {"key": caller.key_id, "number": body.number}

    return app


def test_admin_needs_an_admin_key_even_on_loopback(tmp_path: Path, engine: StubEngine) -> None:
    with serve(tmp_path, engine, admin(Settings(state_dir=tmp_path))) as gateway:
        for key, status in (
            ("talker", 403),
            ("voter", 403),
            ("limited", 403),
            ("sk-burnish-x", 401),
            (None, 401),
            ("admin", 200),
        ):
            with gateway.client(key) as client:
                response = client.post("/admin/echo", json={"number": 1})
            assert response.status_code == status, key
            assert response.headers["x-request-id"]
            assert status == 200 or error_of(response, status)


def test_the_application_behind_answers_in_the_same_envelope(tmp_path: Path, engine: StubEngine) -> None:
    with serve(tmp_path, engine, admin(Settings(state_dir=tmp_path))) as gateway, gateway.client("admin") as client:
        assert error_of(client.post("/admin/echo", json={"number": "x"}), 400)["param"] == "number"
        assert error_of(client.post("/admin/echo", json={"number": 9}), 409)["code"] == "lost_race"
        assert error_of(client.post("/admin/echo", json={"number": 8}), 404)["message"] == "no such thing"
        assert "secret" not in error_of(client.post("/admin/echo", json={"number": 7}), 500)["message"]
        error_of(client.get("/admin/echo"), 405)
        error_of(client.get("/nowhere"), 404)
        error_of(client.post("/admin/echo", json={"number": 1}, headers={"origin": "http://evil.example"}), 403)


@pytest.mark.parametrize(
    ("method", "path"), [*ROUTES, ("GET", "/readyz"), ("GET", "/healthz"), ("GET", "/admin/agents")]
)
def test_the_engines_key_and_address_never_leave(shared: Running, method: str, path: str) -> None:
    with shared.client("talker") as client:
        for body in ({"model": "agent", "messages": HELLO}, {"model": "agent@v9", "messages": HELLO}, VOTE):
            response = client.request(method, path, json=body)
            shown = response.text + str(response.headers)
            assert ENGINE_KEY not in shown
            assert shared.engine.url.removeprefix("http://") not in shown


def test_the_clients_key_does_not_reach_the_engine(gateway: Running) -> None:
    gateway.chat("talker")
    (headers,) = gateway.engine.headers
    assert gateway.secrets["talker"] not in str(headers)
    assert headers["authorization"] == f"Bearer {ENGINE_KEY}"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/inference/v1/generate",
        "/health",
        "/v1/../v1/load_lora_adapter",
    ],
)
def test_no_path_of_the_gateway_leads_to_the_engines_own(shared: Running, path: str) -> None:
    with shared.client("talker") as client:
        error_of(client.post(path, json={"lora_name": "agent@v3", "lora_path": "/tmp"}), 404)
    assert set(shared.engine.loaded) == {"agent@v1", "agent@v2"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8700", "127.0.0.1.evil.example", "192.168.1.5", "localhost@evil.example"]
)
@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/admin/agents")])
def test_a_foreign_host_is_refused(shared: Running, method: str, path: str, host: str) -> None:
    with shared.client("talker") as client:
        assert error_of(client.request(method, path, json=VOTE, headers={"host": host}), 403)["code"] == "foreign_host"


def test_long_hosts_are_not_remembered(shared: Running) -> None:
    n_before = host_guard.hostname.cache_info().currsize
    with shared.client() as client:
        for n in range(3):
            error = error_of(client.get("/v1/models", headers={"host": "a" * 60_000 + str(n)}), 403)
            assert len(error["message"]) < 500
    assert host_guard.hostname.cache_info().currsize == n_before


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "127.8.9.1:80", "[::1]:8700", "LOCALHOST"])
def test_this_machine_is_at_home(shared: Running, host: str) -> None:
    with shared.client() as client:
        assert client.get("/v1/models", headers={"host": host}).status_code == 200


PROXIES: list[dict[str, str]] = [
    {"host": "api.example"},
    {"host": "api.example:443"},
    {"x-forwarded-for": "203.0.113.9"},
    {"x-forwarded-proto": "https"},
    {"x-forwarded-host": "api.example"},
    {"x-forwarded-user": "ann"},
    {"forwarded": "for=203.0.113.9"},
    {"via": "1.1 caddy"},
    {"x-real-ip": "203.0.113.9"},
    {"cf-connecting-ip": "203.0.113.9"},
]


@pytest.mark.parametrize("headers", PROXIES, ids=str)
def test_what_a_proxy_passes_on_needs_a_key(tmp_path: Path, engine: StubEngine, headers: dict[str, str]) -> None:
    with serve(tmp_path, engine) as gateway:
        assert gateway.chat().status_code == 200
        if "host" in headers:
            assert error_of(gateway.chat(headers=headers), 403)["code"] == "foreign_host"
            return
        assert error_of(gateway.chat(headers=headers), 401)["code"] == "missing_api_key"
        assert gateway.chat("talker", headers=headers).status_code == 200
        for path in ("/v1/models", "/v1/feedback"):
            with gateway.client() as client:
                method = "GET" if path == "/v1/models" else "POST"
                assert client.request(method, path, json=VOTE, headers=headers).status_code == 401


def test_under_a_public_name_every_request_needs_a_key(tmp_path: Path, engine: StubEngine) -> None:
    with serve(tmp_path, engine, allowed_hosts=("api.example",)) as gateway:
        for headers in ({}, {"host": "api.example"}):
            assert error_of(gateway.chat(headers=headers), 401)["code"] == "missing_api_key"
            assert gateway.chat("talker", headers=headers).status_code == 200


def test_a_proxy_of_another_user_that_says_nothing_of_itself_needs_a_key(gateway: Running) -> None:
    assert status_line(gateway, None) == 200
    if os.geteuid():
        pytest.skip("only root can open a connection of another user")
    assert status_line(gateway, 33) == 401


def test_a_connection_whose_user_nobody_knows_needs_a_key(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (None, os.geteuid() + 1):
        monkeypatch.setattr(peer, "owner_of", lambda *_, owner=owner: owner)
        assert error_of(gateway.chat(), 401)["code"] == "missing_api_key"
        assert gateway.chat("talker").status_code == 200


def test_whose_a_connection_is_costs_one_question(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = peer.owner_of
    monkeypatch.setattr(peer, "owner_of", lambda *ends: asked.append(ends) or real(*ends))
    with gateway.client() as client:
        assert [client.get("/v1/models").status_code for _ in range(3)] == [200] * 3
        assert len(asked) == 1
        for _ in range(3):
            client.get("/v1/models", headers={"authorization": f"Bearer {gateway.secrets['talker']}"})
    with gateway.client("talker") as client:
        client.get("/v1/models")
    assert len(asked) == 1


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_the_kernel_says_whose_a_connection_is(address: str, family: socket.AddressFamily) -> None:
    with socket.create_server((address, 0), family=family) as server:
        here = server.getsockname()[:2]
        line = socket.create_connection(here)
        there = line.getsockname()[:2]
        assert peer.owner_of(there, here) == os.geteuid()
        assert peer.owner_of(here, there) is None  # nobody has accepted it yet
        assert peer.owner_of(here, ("127.0.0.1", 1)) is None  # that is the listener
        line.close()
        assert peer.owner_of(there, here) is None


def status_line(gateway: Running, user: int | None) -> int:
    """The status of the answer to a bare request, as nginx and HAProxy may pass it on."""
    with connected(int(gateway.url.rpartition(":")[2]), 5.0, user) as line:
        line.sendall(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:8700\r\nconnection: close\r\n\r\n")
        return int(line.recv(64).split()[1])


def test_nginx_asks_in_http_1_0_by_default_and_needs_a_key(gateway: Running) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    for version, status in (("1.0", b" 401 "), ("1.1", b" 200 ")):
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(f"GET /v1/models HTTP/{version}\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
            assert status in line.recv(64)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1.evil.example", ""]
)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_foreign_origin_is_refused(shared: Running, method: str, path: str, origin: str) -> None:
    with shared.client("talker") as client:
        assert (
            error_of(client.request(method, path, json=VOTE, headers={"origin": origin}), 403)["code"]
            == "foreign_origin"
        )


def test_listed_origins_and_hosts_may_call(tmp_path: Path, engine: StubEngine) -> None:
    page = "https://app.example"
    with (
        serve(tmp_path, engine, allowed_origins=(page,), allowed_hosts=("api.example",)) as gateway,
        gateway.client("talker") as client,
    ):
        asked = {"origin": page, "host": "api.example", "access-control-request-method": "POST"}
        response = client.options("/v1/chat/completions", headers=asked)
        assert response.status_code == 200
        assert "authorization" in response.headers["access-control-allow-headers"]
        response = client.get("/v1/models", headers={"origin": page})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, page)
        assert client.get("/v1/models", headers={"origin": gateway.url}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example"])
def test_a_gateway_without_keys_stays_on_loopback(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="burnish keys create"):
        check_bind(Settings(state_dir=tmp_path, gateway=Gateway(host=host)))
    check_bind(Settings(state_dir=tmp_path, gateway=Gateway(host="127.0.0.1")))


def test_a_gateway_with_an_inference_key_may_listen_elsewhere(gateway: Running) -> None:
    check_bind(Settings(state_dir=gateway.settings.state_dir, gateway=Gateway(host="0.0.0.0")))
