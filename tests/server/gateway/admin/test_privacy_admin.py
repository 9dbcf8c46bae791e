"""The verbs of `burnish privacy` over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from benchmarks.security.requests import USER
from benchmarks.security.world import World, asking, world
from burnish.keys import Scope
from burnish.server.ingest.ingester import Ingester

Test = Callable[[httpx.AsyncClient, World, dict[str, str]], Awaitable[None]]


def run(folder: Path, test: Test) -> None:
    """Run `test` with a client, a world, and the headers of an admin's key."""

    async def inside(made: World) -> None:
        async with asking(made) as client:
            secret = made.add_keys({"admin": {"scopes": [Scope.ADMIN]}})["admin"]
            await test(client, made, {"authorization": f"Bearer {secret}"})

    with world(folder) as made:
        asyncio.run(inside(made))


def test_a_user_is_exported_and_forgotten(tmp_path: Path) -> None:
    async def test(client: httpx.AsyncClient, made: World, headers: dict[str, str]) -> None:
        whom = {"user": USER}
        exported = await client.get("/admin/privacy/export", params=whom, headers=headers)
        assert exported.headers["content-type"].startswith("application/jsonl")
        kinds = [json.loads(line)["what"] for line in exported.text.splitlines()]
        assert sorted(kinds) == ["audit entry", "key", "personal agent", "session", "turn"]
        asked = await client.post("/admin/privacy/forget", json={**whom, "reason": "she asked"}, headers=headers)
        assert (asked.status_code, asked.json()["state"]) == (200, "running")
        ingester = Ingester.of(made.settings, made.journal)
        for _ in range(100):
            await asyncio.to_thread(ingester.run_once)
            found = (await client.get("/admin/privacy/status", params=whom, headers=headers)).json()
            if found["state"] == "done":
                break
            await asyncio.sleep(0.1)
        assert (found["n_turns"], found["n_feedback"], found["n_keys"]) == (1, 1, 1)
        assert (await client.get(f"/admin/turns/{made.things.turn}", headers=headers)).status_code == 404
        empty = await client.get("/admin/privacy/export", params=whom, headers=headers)
        left = [json.loads(line) for line in empty.text.splitlines()]
        assert empty.status_code == 200 and {each["what"] for each in left} == {"audit entry"}
        assert {each["action"] for each in left} == {"forget", "forgotten", "revoke-user"}
        assert USER not in empty.text

    run(tmp_path, test)


def test_bad_input_says_what_to_do(tmp_path: Path) -> None:
    async def test(client: httpx.AsyncClient, made: World, headers: dict[str, str]) -> None:
        unknown = await client.post("/admin/privacy/forget", json={"user": "nobody"}, headers=headers)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "user_not_found")
        none = await client.get("/admin/privacy/status", params={"user": "nobody"}, headers=headers)
        assert (none.status_code, none.json()["error"]["code"]) == (404, "erasure_not_found")
        for body in ({}, {"user": ""}, {"user": "a\0"}, {"user": "a", "by": "name"}, {"user": "a", "more": 1}):
            assert (await client.post("/admin/privacy/forget", json=body, headers=headers)).status_code == 400
        secret = made.add_keys({"limited": {"scopes": [Scope.ADMIN], "agents": ["agent"]}})["limited"]
        told = await client.get(
            "/admin/privacy/export", params={"user": USER}, headers={"authorization": f"Bearer {secret}"}
        )
        assert told.status_code == 403 and "use a key for all of them" in told.json()["error"]["message"]

    run(tmp_path, test)
