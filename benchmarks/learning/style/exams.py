"""Exams of the live version: through the gateway, not recorded as training, with answers checked by programs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.client import N_AT_ONCE, Client
from benchmarks.learning.style import world
from benchmarks.learning.style.notes import Notes
from burnish.sandbox.world import heldout, prompt_sets
from burnish.sandbox.world.prompt_sets import Prompt


class Exams:
    """Asks one agent. A missing answer counts as wrong."""

    def __init__(self, client: Client, agent: str, base: str, seed: int) -> None:
        self._client = client
        self._agent = agent
        self._base = base
        self._seed = seed

    async def score(self) -> float:
        """The score on held-out prompts, without notes."""
        return world.score(await self._answers([prompt.messages for prompt in heldout.prompts()]))

    async def strangers(self) -> float:
        """First-turn satisfaction of unseen users, who have no notes."""
        return await self._satisfaction(world.strangers(self._seed), Notes())

    async def again(self, notes: Notes | None) -> float:
        """First-turn satisfaction of the seen users, with their notes if there are any."""
        return await self._satisfaction(world.again(self._seed), notes or Notes())

    async def retention(self) -> tuple[float, float]:
        """Shares of other instructions that the agent and its base answer correctly, greedily."""
        prompts = prompt_sets.other_prompts(world.RETENTION, world.N_RETENTION)
        return await self._passed(self._agent, prompts), await self._passed(self._base, prompts)

    async def _satisfaction(self, openings: Sequence[world.Opening], notes: Notes) -> float:
        asked = [[*notes.before(user.name), {"role": "user", "content": text}] for user, text in openings]
        return world.satisfied(openings, await self._answers(asked))

    async def _passed(self, model: str, prompts: Sequence[Prompt]) -> float:
        messages, tools = [prompt["messages"] for prompt in prompts], [prompt["tools"] or () for prompt in prompts]
        replies = await self._answers(messages, tools, model=model, temperature=0.0, max_tokens=192)
        return sum(map(prompt_sets.passes, prompts, replies)) / len(prompts)

    async def _answers(
        self,
        prompts: Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Sequence[Mapping[str, Any]]] | None = None,
        *,
        model: str = "",
        temperature: float = world.TEMPERATURE,
        max_tokens: int = world.MAX_TOKENS,
    ) -> list[str]:
        slots = asyncio.Semaphore(N_AT_ONCE)
        sampling: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens, "may_train": False}

        async def ask(messages: Sequence[Mapping[str, Any]], offered: Sequence[Mapping[str, Any]]) -> str:
            async with slots:
                reply = await self._client.ask(model or self._agent, messages, tools=offered, **sampling)
                return reply.text if reply is not None else ""

        return list(await asyncio.gather(*map(ask, prompts, tools or [()] * len(prompts))))
