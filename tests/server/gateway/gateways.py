"""A gateway under test: the real application in a real server, in a thread, with its state in a temporary directory."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from burnish import serving_table as table
from burnish.config import Gateway, Journal, Personal, Remote, Settings
from burnish.keys import Key, Scope, mint
from burnish.records import Feedback, Interaction
from burnish.segments import file
from burnish.server.gateway.app import create_app
from burnish.server.gateway.process import GatewayProtocol
from burnish.serving_table import AgentRoute, Routes
from burnish.testing import StubEngine

ENGINE_KEY = "engine-secret-0123456789"
HELLO = [{"role": "user", "content": "hello there"}]


def records(folder: Path) -> list[Any]:
    """Every record in the segments below `folder`, oldest first."""
    return [record for path in sorted(folder.glob("*.seg")) for record, _ in file.read(path)]


@dataclass
class Running:
    """A served gateway with its engine, keys and folders."""

    settings: Settings
    url: str
    engine: StubEngine
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def interactions(self) -> list[Interaction]:
        return [record for record in records(self.settings.segments_dir) if isinstance(record, Interaction)]

    @property
    def feedback(self) -> list[Feedback]:
        return [record for record in records(self.settings.segments_dir) if isinstance(record, Feedback)]

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.secrets.get(key, key)}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20)

    def chat(self, key: str | None = None, headers: Mapping[str, str] | None = None, **body: Any) -> httpx.Response:
        with self.client(key) as client:
            return client.post(
                "/v1/chat/completions", json={"model": "agent", "messages": HELLO, **body}, headers=headers
            )

    def stream(self, key: str | None = None, **body: Any) -> list[Any]:
        """The data of every event of a streamed chat."""
        return events(self.chat(key, stream=True, **body))


def events(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    found = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [data if data == "[DONE]" else json.loads(data) for data in found]


def text_of(chunks: list[Any], choice: int = 0) -> str:
    pieces = [
        c for chunk in chunks if isinstance(chunk, dict) for c in chunk.get("choices", ()) if c["index"] == choice
    ]
    return "".join(piece["delta"].get("content") or "" for piece in pieces)


def make_keys() -> tuple[dict[str, str], dict[str, Key]]:
    """One key for each role, by name, and in the form of the serving table."""
    secrets: dict[str, str] = {}
    stored: dict[str, Key] = {}
    for name, scopes, tenant, agents in (
        ("talker", [Scope.INFERENCE], "default", ()),
        ("voter", [Scope.FEEDBACK], "default", ()),
        ("admin", [Scope.ADMIN], "default", ()),
        ("stranger", [Scope.INFERENCE], "other", ()),
        ("limited", [Scope.INFERENCE], "default", ("agent",)),
        ("neighbour", [Scope.FEEDBACK], "default", ()),
        ("foreigner", [Scope.FEEDBACK, Scope.OPERATOR], "other", ()),
        ("viewer", [Scope.VIEWER], "default", ()),
        ("operator", [Scope.OPERATOR], "default", ()),
    ):
        secrets[name], key = mint(scopes, tenant=tenant, agents=agents, name=name)
        stored[key.digest] = key
    return secrets, stored


def write_table(settings: Settings, engines: tuple[str, ...], keys: Mapping[str, Key], **changes: Any) -> None:
    agents = {
        "agent": AgentRoute("agent", live=2, previous=1, loaded=(1, 2)),
        "second": AgentRoute("second"),
        "theirs": AgentRoute("theirs", tenant="other"),
    }
    tree: dict[str, Any] = {
        "generation": 7,
        "engines": engines,
        "engine_key": ENGINE_KEY,
        "agents": agents,
        "keys": keys,
    }
    table.write(settings.run_dir / "routes.json", Routes(**tree | changes))


@contextmanager
def serve(
    folder: Path,
    engine: StubEngine,
    fallback: ASGIApp | None = None,
    remote: Remote | None = None,
    personal: Personal | None = None,
    journal: Journal | None = None,
    **gateway: Any,
) -> Iterator[Running]:
    """A gateway in a thread, in front of `engine`."""
    settings = Settings(
        state_dir=folder,
        gateway=Gateway(port=0, **gateway),
        remote=remote or Remote(),
        personal=personal or Personal(),
        journal=journal or Journal(),
    )
    secrets, keys = make_keys()
    write_table(settings, (engine.url,), keys)
    config = uvicorn.Config(
        create_app(settings, fallback), port=0, loop="uvloop", http=GatewayProtocol, ws="none", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the gateway did not start"
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(settings, f"http://127.0.0.1:{port}", engine, secrets)
    finally:
        server.should_exit = True
        thread.join(20)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error
