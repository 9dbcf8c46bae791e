"""A whole Burnish for a measurement: every part, the sandbox's model, one streaming client. All end with the block."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

from burnish import config
from burnish.journal import Journal
from burnish.processes.parts import gateway_url
from burnish.sandbox.demo import stack
from burnish.sandbox.world.users import SimulatedUser, listener_request

PORTS = {"gateway.port": 8790, "engine.port": 8791}


@dataclass(slots=True)
class Reply:
    """One streamed reply: the version that answered, and the arrival time of each piece (seconds, monotonic)."""

    response_id: str = ""
    version: int = 0
    text: str = ""
    asked_at: float = 0.0
    at: list[float] = field(default_factory=list)


class Stand:
    """A running stack as its clients reach it, with its journal for internal facts."""

    def __init__(self, settings: config.Settings, key: str) -> None:
        self.settings = settings
        self.journal = Journal.open(settings.journal_url)
        url = gateway_url(settings)
        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120.0)
        self._feedback = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30.0)

    async def ask(self, text: str, *, user: str = "u", max_tokens: int = 48, trains: bool = True) -> Reply:
        """A streamed reply to one prompt."""
        reply = Reply(asked_at=time.monotonic())
        response: Any = await self._client.chat.completions.with_raw_response.create(
            model=self.settings.agent.name,
            messages=[{"role": "user", "content": text}],
            max_tokens=max_tokens,
            temperature=1.0,
            stream=True,
            user=user,
            extra_headers={} if trains else {"x-burnish-train": "false"},
        )
        reply.version = int(response.headers["x-burnish-version"].rpartition("@v")[2])
        async for chunk in response.parse():
            reply.response_id = chunk.id
            if chunk.choices and (piece := chunk.choices[0].delta.content):
                reply.text += piece
                reply.at.append(time.monotonic())
        return reply

    async def rate(self, reply: Reply, rating: str) -> None:
        """A user's thumb for a reply."""
        answer = await self._feedback.post("/v1/feedback", json={"target": reply.response_id, "rating": rating})
        answer.raise_for_status()

    async def close(self) -> None:
        await self._client.close()
        await self._feedback.aclose()
        self.journal.close()


@asynccontextmanager
async def standing(folder: Path, **changes: Any) -> AsyncIterator[Stand]:
    """Run every part on the sandbox's settings with `changes` (dotted keys, `__` for the dot)."""
    flags = {key.replace("__", "."): value for key, value in changes.items()}
    settings = config.load(flags={**PORTS, "state_dir": str(folder / "state"), **flags})
    key = stack.make_user_key(settings)
    async with stack.running(settings, folder / "parts.log"):
        stand = Stand(settings, key)
        try:
            yield stand
        finally:
            await stand.close()


def opening(rng: random.Random) -> str:
    """A request of a simulated user."""
    return SimulatedUser(rng.randrange(10**6), "ana").opening()


async def streams(stand: Stand, n: int, rng: random.Random, is_over: asyncio.Event, replies: list[Reply]) -> None:
    """Hold `n` long streams open until `is_over`. Each reply goes to `replies` when it ends."""

    async def one() -> None:
        while not is_over.is_set():
            replies.append(await stand.ask(listener_request(rng), max_tokens=300, trains=False))

    await asyncio.gather(*(one() for _ in range(n)))
