"""Looks at a run between two rounds: scores of the served version and of the learner's newest, served or not.

Each version is asked only once, because the same draws would give the same score.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from benchmarks.learning.client import N_AT_ONCE, Client
from benchmarks.learning.drill import world
from benchmarks.learning.drill.state import State
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.stack import Stack
from benchmarks.learning.style.world import MAX_TOKENS, TEMPERATURE
from burnish.adapters.files.store import AdapterStore
from burnish.errors import BurnishError
from burnish.server.rollout.engine.vllm import VllmEngine

N_TRIES = 3
"""Tries for each answer. All failed ones are counted."""
Scores = tuple[float, float]
"""The score over all replies, and over the first reply to each prompt."""


@dataclass(frozen=True, slots=True)
class Look:
    """Scores (0 to 1) of the served and the newest version, and their numbers (0: the base).

    `once` is the served version's score by the first reply to each prompt.
    """

    served: float
    once: float
    learner: float
    live: int
    newest: int


class Looks:
    """Looks at one run.

    `client` is the gateway's. The engine itself is asked for the newest version if it is not live.
    """

    def __init__(self, running: Stack, engine: SharedEngine) -> None:
        self._running = running
        self._engine = engine
        self._direct = Client(engine.url, engine.api_key)
        self._known: dict[tuple[int, ...], Scores] = {}

    async def look(self, state: State) -> Look:
        """Both scores.

        Raises EngineError if the newest version cannot be loaded, BurnishError if an answer is missing.
        """
        served = state.serving
        if served not in self._known:
            self._known[served] = await self._score(self._running.client, self._running.agent)
        newest = (state.newest,)
        if newest not in self._known:
            self._known[newest] = await self._score_refused(state.newest)
        every, once = self._known[served]
        return Look(every, once, self._known[newest][0], state.live, state.newest)

    async def close(self) -> None:
        await self._direct.close()

    async def _score_refused(self, version: int) -> Scores:
        """The score of a version that does not serve. It is loaded under a name that no request of the run can use."""
        agent = self._running.agent
        engine, name = VllmEngine(self._engine.url, self._engine.api_key), f"{agent}@bench{version}"
        path = AdapterStore(self._running.settings.adapters_dir).path(agent, version)
        try:
            await engine.load(name, str(path.resolve()))
            try:
                return await self._score(self._direct, name)
            finally:
                await engine.unload(name)
        finally:
            await engine.close()

    async def _score(self, client: Client, model: str) -> Scores:
        n, slots = len(world.PROMPTS), asyncio.Semaphore(N_AT_ONCE)

        async def one(i: int) -> str:
            draws: dict[str, Any] = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "seed": world.FIRST_DRAW + i}
            for _ in range(N_TRIES):
                async with slots:
                    reply = await client.ask(model, world.PROMPTS[i % n].messages, may_train=False, **draws)
                if reply is not None:
                    return reply.text
            # a busy machine must not look like a worse version
            raise BurnishError(
                f"expected an answer of {model} within {N_TRIES} tries, got none; "
                f"the last failure: {client.failures[-1]}"
            )

        replies = await asyncio.gather(*map(one, range(n * world.N_DRAWS)))
        return world.score(replies), world.score(replies[:n])
