"""Exams of the live version: through the gateway, not recorded as training, with answers checked by programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.client import Client
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
        replies = await self._client.answers(model, messages, tools, temperature=0.0, max_tokens=192)
        return sum(map(prompt_sets.passes, prompts, replies)) / len(prompts)

    async def _answers(self, prompts: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
        return await self._client.answers(
            self._agent, prompts, temperature=world.TEMPERATURE, max_tokens=world.MAX_TOKENS
        )
