"""Exams of what is served: through the gateway, out of training, with answers that programs check."""

import json
from collections.abc import Mapping, Sequence

from benchmarks.learning.stack import Stack
from benchmarks.learning.style.talk import Memory
from benchmarks.real_model.english import world
from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS
from burnish.config import BASE_NAME
from burnish.errors import BurnishError
from burnish.files import read_json, replace_text
from burnish.sandbox.demo.worlds import UNSEEN
from burnish.sandbox.english import questions, style
from burnish.server.rollout.forgetting_prompts import GENERAL_MAX_TOKENS, SECOND_TEMPERATURE, read_prompts

Conversation = Sequence[Mapping[str, str]]
OF_BASE = f"unseen-base-{N_BASE_ANSWERS}.json"
"""The file in a cache folder with what the base passes."""


class Exams:
    """Asks a run's agent and its base. A missing answer counts as wrong.

    With `notes`, each question is asked as one of the users would ask it, after that user's note.
    """

    def __init__(self, running: Stack, notes: Memory | None = None) -> None:
        self._running = running
        self._notes = notes

    async def replies(self) -> list[str]:
        """One reply to each held-out question, at the users' temperature."""
        return await self._ask(self._running.agent, [self._asked(n) for n in range(len(questions.heldout()))])

    async def prompted(self) -> float:
        """The base's score with the house style in its prompt."""
        asked, wishes = questions.heldout(), style.instructions()
        prompts = [[{"role": "user", "content": f"{question.text}\n\n{wishes}"}] for question in asked]
        return style.breakdown(asked, await self._ask(BASE_NAME, prompts))["score"]

    async def abilities(self) -> dict[str, float]:
        """The unseen prompts, greedily. `kept`: the share of those that the base passes. `kept_sure`: of those that it
        passes as often as the gate's prompts. `general`: the prompts passed, as a multiple of the base's. Raises
        BurnishError if the base passes none.
        """
        of_base, *again = await self._of_base()
        if not any(of_base):
            raise BurnishError(f"expected a base that passes some of the prompts in {UNSEEN}, got one that passes none")
        own = await self._passed(self._running.agent)
        sure = [all(each) for each in zip(of_base, *again, strict=True)]
        found = {"kept": _share(own, of_base), "general": sum(own) / sum(of_base)}
        return found | ({"kept_sure": _share(own, sure)} if any(sure) else {})

    async def _of_base(self) -> list[list[bool]]:
        """What the base passes: greedily, and in each of further draws. It is asked once for all runs."""
        file = self._running.settings.state_dir / "cache" / OF_BASE
        known = read_json(file)
        if known is None:
            temperatures = (0.0, *(N_BASE_ANSWERS - 1) * [SECOND_TEMPERATURE])
            known = {"passed": [await self._passed(BASE_NAME, each) for each in temperatures]}
            file.parent.mkdir(exist_ok=True)
            replace_text(file, json.dumps(known) + "\n")
        return [[bool(each) for each in passed] for passed in known["passed"]]

    async def _passed(self, model: str, temperature: float = 0.0) -> list[bool]:
        prompts = read_prompts(UNSEEN, None)
        messages, tools = [prompt.messages for prompt in prompts], [prompt.tools for prompt in prompts]
        replies = await self._running.client.answers(
            model, messages, tools, temperature=temperature, max_tokens=GENERAL_MAX_TOKENS
        )
        return [bool(prompt.check.fullmatch(reply)) for prompt, reply in zip(prompts, replies, strict=True)]

    def _asked(self, n: int) -> Conversation:
        noted = self._notes.before(world.NAMES[n % len(world.NAMES)]) if self._notes else []
        return [*noted, *questions.heldout()[n].messages]

    async def _ask(self, model: str, prompts: Sequence[Conversation]) -> list[str]:
        return await self._running.client.answers(
            model, prompts, temperature=world.TEMPERATURE, max_tokens=world.MAX_TOKENS
        )


def _share(own: Sequence[bool], among: Sequence[bool]) -> float:
    return sum(a and b for a, b in zip(own, among, strict=True)) / sum(among)
