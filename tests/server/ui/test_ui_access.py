"""Signing in and out, the one-time link, and what guards every request."""

import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from burnish.server.ui.admin_api import make_http
from burnish.server.ui.logins import Login, Logins, make_link, use_link
from burnish.server.ui.site import Guard, Site
from burnish.server.ui.visit import STATIC
from tests.server.ui.fake_api import ANSWERS, ORIGIN, FakeApi
from tests.server.ui.visitors import post, visiting


async def test_every_route_forbids_scripts_styles_and_frames_from_elsewhere() -> None:
    api = FakeApi()
    async with make_http("http://gateway", api.transport()) as http:
        guard = Site(http).app()
        assert isinstance(guard, Guard) and isinstance(guard._inner, Starlette)
        paths = [route.path for route in guard._inner.routes if isinstance(route, Route | Mount)]
    assert len(paths) > 20
    for key in (None, "sk-1"):
        async with visiting(api, key=key) as client:
            for path in [*paths, "/static/ui.js", "/nowhere"]:
                for method in ("GET", "POST"):
                    headers = (await client.request(method, re.sub("{.*?}", "1", path))).headers
                    policy = headers["content-security-policy"]
                    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, path
                    assert "unsafe" not in policy and "http" not in policy
                    assert headers["x-content-type-options"] == "nosniff"


async def test_without_a_login_a_page_leads_to_it_and_back() -> None:
    async with visiting(FakeApi(), key=None) as client:
        answer = await client.get("/a/agent/versions?to=3")
        assert answer.headers["location"] == "/login?after=%2Fa%2Fagent%2Fversions%3Fto%3D3"
        signed = await post(client, answer.headers["location"], key="sk-1")
        assert signed.headers["location"] == "/a/agent/versions?to=3"
        cookie = signed.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie and "sk-1" not in cookie


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil.example"])
async def test_a_login_leads_nowhere_else(after: str) -> None:
    async with visiting(FakeApi(), key=None) as client:
        answer = await client.post("/login", params={"after": after}, data={"key": "k"}, headers={"origin": ORIGIN})
    assert answer.headers["location"] == "/"


async def test_a_wrong_key_is_told_and_signs_nobody_in() -> None:
    async with visiting(FakeApi(), key=None) as client:
        answer = await post(client, "/login", key="wrong")
        assert (answer.status_code, "unknown key" in answer.text) == (401, True)
        assert (await client.get("/agents")).status_code == 303


async def test_signing_out_ends_the_login() -> None:
    async with visiting(FakeApi()) as client:
        name = next(iter(client.cookies.values()))
        await post(client, "/logout")
        client.cookies.set("burnish_ui_8703", name)
        assert (await client.get("/agents")).status_code == 303


async def test_a_link_signs_in_once_with_the_pages_own_key(tmp_path: Path) -> None:
    key, link = tmp_path / "ui.key", tmp_path / "ui.link"
    key.write_text("sk-own\n")
    token = make_link(link)
    assert link.stat().st_mode & 0o777 == 0o600
    async with visiting(FakeApi(), key=None, own_key_file=key, link_file=link) as client:
        assert (await client.get("/login?token=other")).status_code == 400
        assert (await client.get(f"/login?token={token}")).status_code == 303
        assert (await client.get("/agents")).status_code == 200
        client.cookies.clear()
        again = await client.get(f"/login?token={token}")
        assert (again.status_code, "was used before" in again.text) == (400, True)


def test_a_new_link_replaces_the_earlier_one(tmp_path: Path) -> None:
    first, second = make_link(tmp_path / "l"), make_link(tmp_path / "l")
    assert not use_link(tmp_path / "l", first)
    assert use_link(tmp_path / "l", second)
    assert not use_link(None, "") and not use_link(tmp_path / "none", "")


def test_logins_end_after_half_a_day_without_use() -> None:
    logins = Logins()
    login = Login("k", "n", frozenset({"operator"}))
    name = logins.add(login)
    assert logins.find(name) is login and login.may("viewer") and not login.may("admin")
    login.used_at -= 13 * 3600
    assert logins.find(name) is None and logins.find(None) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:8703"}, 403),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8703"}, 200),
    ],
)
async def test_a_foreign_host_is_refused(headers: dict[str, str], status: int) -> None:
    async with visiting(FakeApi(), key=None) as client:
        assert (await client.get("/login", headers=headers)).status_code == status


WRONG = ["http://[", "http://[::1", "http://127.0.0.1:x", "http://127.0.0.1:99999", "[", "//["]


@pytest.mark.parametrize("address", WRONG)
async def test_an_address_that_is_none_is_refused_in_every_header(address: str) -> None:
    async with visiting(FakeApi()) as client:
        login = await client.post("/login", data={"key": "sk-1"}, headers={"origin": address})
        assert login.status_code == 403
        assert (await client.get("/login", headers={"host": address.removeprefix("http://")})).status_code == 403
        headers = {"origin": ORIGIN, "referer": address, "accept": "text/html"}
        assert (await client.post("/a/agent/release", data={"verb": "none"}, headers=headers)).status_code < 500
        said = {"target": "t", "rating": "up", "back": address}
        assert (await client.post("/a/agent/say", data=said, headers=headers)).status_code < 500


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1:9999"])
async def test_a_form_from_elsewhere_is_refused(origin: str | None) -> None:
    api = FakeApi()
    async with visiting(api) as client:
        headers = {} if origin is None else {"origin": origin}
        answer = await client.post("/a/agent/release", data={"verb": "rollback"}, headers=headers)
    assert (answer.status_code, api.sent) == (403, [])


def test_the_pages_connections_are_bounded_like_the_gateways(tmp_path: Path) -> None:
    """A head of any size was kept, for as long as its sender liked."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = f"from burnish.server.ui.process import run; run({port}, 'http://127.0.0.1:9')"
    served = subprocess.Popen([sys.executable, "-c", program])
    try:
        while not is_listening(port):
            assert served.poll() is None
            time.sleep(0.05)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(b"GET /login HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 100_000)
            with suppress(OSError):
                assert b" 200 " not in line.recv(4096)
        assert httpx.get(f"http://127.0.0.1:{port}/login", headers={"x-long": "a" * 100_000}).status_code == 431
        assert httpx.get(f"http://127.0.0.1:{port}/login").status_code == 200
    finally:
        served.terminate()
        served.wait(20)


def is_listening(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


async def test_every_answer_forbids_what_comes_from_elsewhere() -> None:
    async with visiting(FakeApi()) as client:
        for path in ("/login", "/a/agent/overview", "/nothing", "/static/ui.css", "/healthz"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_no_asset_is_loaded_from_elsewhere() -> None:
    for path in STATIC.parent.rglob("*"):
        if path.suffix in (".css", ".js", ".html"):
            text = path.read_text(encoding="utf-8")
            assert "//cdn" not in text and "https://" not in text and "@import" not in text, path


async def test_a_viewer_sees_no_buttons_that_it_cannot_use() -> None:
    seen = {**ANSWERS["/admin/agents"], "key": {"key_id": "v", "scopes": ["viewer"], "agents": []}}
    async with visiting(FakeApi(**{"/admin/agents": seen})) as client:
        assert "Roll back" not in (await client.get("/a/agent/versions")).text
        assert "Say what you think" not in (await client.get("/a/agent/turns/chatcmpl-1")).text
        assert "lacks the scopes" in (await client.get("/a/agent/compare")).text


async def test_a_gateway_that_is_away_is_told() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with visiting(httpx.MockTransport(away), key=None) as client:
        answer = await post(client, "/login", key="sk-1")
    assert (answer.status_code, "is `burnish up` running?" in answer.text) == (502, True)


async def test_a_revoked_key_is_signed_out() -> None:
    api = FakeApi()
    async with visiting(api) as client:
        api.answers = {}
        api._error = lambda *_: httpx.Response(401, json={"error": {"message": "gone"}})  # type: ignore[method-assign]
        assert (await client.get("/a/agent/overview")).headers["location"] == "/login"
