"""The engine's key is asked for on every path, and our own parts send it."""

import asyncio
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from burnish.adapters.serving.prepare import prepare
from burnish.config import Engine, Settings
from burnish.errors import ConfigError
from burnish.keys import engine_key
from burnish.processes.parts import parts_of
from burnish.processes.vllm_server import command
from burnish.testing import StubEngine

OPEN_IN_VLLM = ["/metrics", "/tokenize", "/invocations", "/scale_elastic_ep", "/health", "/version", "/docs", "/a/b/c"]


def guard_of(arguments: list[str]) -> Any:
    """What vLLM makes of the flag."""
    module, name = arguments[arguments.index("--middleware") + 1].rsplit(".", 1)
    found = getattr(importlib.import_module(module), name)
    assert inspect.isclass(found)
    return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("guarded"))
    prepare(settings).close()

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("secret")

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("secret")

    anything = Route("/{path:path}", answer, methods=["GET", "POST"])
    app = Starlette(routes=[WebSocketRoute("/v1/realtime", talk), anything])
    app.add_middleware(guard_of(command(settings)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_API_KEY", "k")
        with TestClient(app) as client:
            yield client


@pytest.mark.parametrize("path", [*OPEN_IN_VLLM, "/v1/models", "//metrics", "/v1/../metrics"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("key", [None, "", "k", "Bearer", "Bearer x", "bearer k", "Basic k", "Bearer k "])
def test_no_path_is_open(guarded: TestClient, path: str, method: str, key: str | None) -> None:
    headers = {} if key is None else {"authorization": key.encode()}
    answer = guarded.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert "secret" not in answer.text


def test_the_key_opens_all(guarded: TestClient) -> None:
    for path in OPEN_IN_VLLM:
        assert guarded.get(path, headers={"authorization": "Bearer k"}).text == "secret"
    with guarded.websocket_connect("/v1/realtime", headers={"authorization": "Bearer k"}) as socket:
        assert socket.receive_text() == "secret"
    with pytest.raises(WebSocketDisconnect), guarded.websocket_connect("/v1/realtime"):
        pass


def test_an_engine_without_a_key_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    prepare(settings).close()
    for set_key in (lambda: monkeypatch.delenv("VLLM_API_KEY", False), lambda: monkeypatch.setenv("VLLM_API_KEY", "")):
        set_key()
        with pytest.raises(ConfigError, match="VLLM_API_KEY"):
            guard_of(command(settings))(Starlette())


def test_the_supervisors_check_sends_the_key(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    with StubEngine(api_key=engine_key(settings)) as stub:
        assert httpx.get(f"{stub.url}/health").status_code == 401
        assert stub.port is not None
        settings = settings.model_copy(update={"engine": Engine(port=stub.port)})
        (engine,) = [part for part in parts_of(settings, {}) if part.name == "engine"]
        assert engine.is_healthy is not None
        assert asyncio.run(engine.is_healthy())  # type: ignore[arg-type]
