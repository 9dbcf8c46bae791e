"""A gateway in this process with an agent, one version of it, a user's personal agent, a turn, and feedback on it."""

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from benchmarks.security.requests import AGENT, HELLO, OTHER_AGENT, TENANT, USER, Things
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.personal import name_of
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import prepare, refresh, routes_file
from burnish.adapters.verbs import privacy
from burnish.config import Engine, Personal, Settings
from burnish.config import Journal as JournalSettings
from burnish.journal import Journal
from burnish.journal.tables import AgentRow, KeyRow
from burnish.keys import Scope, mint
from burnish.server.gateway.admin import admin_app
from burnish.server.gateway.app import App, create_app
from burnish.server.ingest.ingester import SETTLE_SECONDS, Ingester
from burnish.server.peer import NAME as PEER
from burnish.server.peer import Peer
from burnish.testing import StubEngine

_LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


@dataclass
class World:
    """`behind` is the application behind the hot path."""

    settings: Settings
    journal: Journal
    behind: FastAPI
    things: Things = field(default_factory=lambda: Things("", ""))

    def add_keys(self, wanted: dict[Any, dict[str, Any]]) -> dict[Any, str]:
        """Make a key for each name, with what `mint` takes. Returns the secrets."""
        secrets = {}
        with self.journal.write() as session:
            for name, terms in wanted.items():
                secrets[name], key = mint(**terms)
                session.add(KeyRow.of(key))
        refresh(self.settings, self.journal)
        return secrets

    def add_personal_agent(self) -> None:
        """The personal agent of the thing's user, at the base."""
        name = name_of(TENANT, AGENT, USER)
        with self.journal.write() as session:
            session.add(AgentRow(name=name, tenant=TENANT, created_at=time.time(), parent=AGENT, user=USER))
            session.flush()
            lifecycle.ensure_agent(session, name, TENANT)
        publish.sync(self.journal, routes_file(self.settings), name)

    def ask_to_forget(self) -> None:
        """An erasure of the thing's user that no ingester carries out."""
        with self.journal.write() as session:
            privacy.forget(session, (TENANT, "user", USER), actor="operator")

    def ingest(self) -> None:
        """Everything that the gateway has recorded goes into the journal."""
        time.sleep(2 * SETTLE_SECONDS)
        while Ingester(self.journal, self.settings.segments_dir, session_timeout=3600.0).run_once():
            pass


@contextmanager
def world(folder: Path, journal_url: str = "") -> Iterator[World]:
    stub = StubEngine(loaded={f"{AGENT}@v1": "/a/1"})
    with stub:
        parts: dict[str, Any] = {"engine": Engine(urls=(stub.url,)), "journal": JournalSettings(url=journal_url)}
        settings = Settings(state_dir=folder, personal=Personal(enabled=True), **parts)
        journal = prepare(settings)
        store = AdapterStore.of(settings)
        with store.aside(AGENT, 1) as directory:
            fill(directory)
            store.publish(AGENT, 1, directory, {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": 0})
        digest = store.manifest(AGENT, 1)["files"]["adapter_model.safetensors"]
        with journal.write() as session:
            lifecycle.announce(session, AGENT, 1, parent=0, step_id=None, digest=digest)
            lifecycle.ensure_agent(session, OTHER_AGENT)
        with journal.write() as session:
            lifecycle.promote(session, AGENT, 1, expected=0, actor="gate", reason="passed")
        refresh(settings, journal)
        yield World(settings, journal, admin_app(settings, journal))
        journal.close()


@asynccontextmanager
async def asking(made: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole application, without a socket between. The world gets its turn and its feedback."""
    app = create_app(made.settings, made.behind)
    own = Peer(None, None)
    own.is_own = True

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PEER: own}, receive, send)

    async with (
        _alive(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(asked), base_url="http://127.0.0.1", timeout=60.0) as client,
    ):
        if not made.things.turn:
            owner = {"scopes": [Scope.INFERENCE, Scope.FEEDBACK], "user": USER}
            secret = made.add_keys({"owner": owner})["owner"]
            headers = {"authorization": f"Bearer {secret}"}
            said = await client.post("/v1/chat/completions", json={"model": AGENT, "messages": HELLO}, headers=headers)
            turn = said.json()["id"]
            said = await client.post("/v1/feedback", json={"target": turn, "rating": "up"}, headers=headers)
            made.things = Things(turn, said.json()["id"])
            await asyncio.to_thread(made.ingest)
            made.add_personal_agent()
            made.ask_to_forget()
        yield client


@asynccontextmanager
async def _alive(app: App) -> AsyncIterator[None]:
    """The application between its start and its end."""
    asked: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    told: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan"}, asked.get, told.put))
    await asked.put({"type": "lifespan.startup"})
    await told.get()
    yield
    await asked.put({"type": "lifespan.shutdown"})
    await task


def fill(directory: Path) -> None:
    """The files of an adapter whose weights are zeros."""
    shapes = {f"{_LAYER}.lora_A.weight": (2, 8), f"{_LAYER}.lora_B.weight": (8, 2)}
    sizes = {name: 4 * rows * columns for name, (rows, columns) in shapes.items()}
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + sizes[name]]}
        at += sizes[name]
    text = json.dumps(header).encode()
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    config = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    (directory / "state.json").write_text("{}")
