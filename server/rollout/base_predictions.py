"""Predictions: the gate's measure for a base that passes too few forgetting prompts.

The base begins an answer to each prompt. The base and a version then predict the next token at several places of that
answer. A version has lost a prompt if it predicts otherwise at every place. What users teach changes the beginnings of
replies first, and a collapse changes every place (docs/decisions/0029-gate-for-any-base.md).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from burnish.adapters.evidence.drift import MAX_DRIFT, drift
from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS, Measure, Retention, tolerated
from burnish.errors import EngineError, EngineUnavailable
from burnish.server.rollout.engine.engine import Engine, Reply
from burnish.server.rollout.engine.vllm import LOW_PRIORITY
from burnish.server.rollout.in_parallel import N_BESIDE_CLIENTS, ask_until

PLACES = (0, 4, 8)
"""Places in the base's answer, by the number of its tokens that come before."""


class Prompt(Protocol):
    """What is asked of a prompt here. Its check plays no part."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Prediction:
    """The base's prediction behind `token_ids`: log-probs by token."""

    token_ids: Sequence[int]
    logprobs: Mapping[int, float]


class Predictions:
    """Compares predictions on the first `n_counted` prompts that the engine accepts. The base is asked once for each
    process.
    """

    def __init__(
        self, prompts: Sequence[Prompt], *, concurrency: int = 24, n_counted: int = N_FORGETTING_PROMPTS
    ) -> None:
        self._prompts = prompts
        self._concurrency = concurrency
        self._n_counted = n_counted
        self._of_base: list[list[Prediction]] = []
        self._n_tried = 0
        self._asking = asyncio.Lock()

    async def ask_base(self, engine: Engine, base: str, is_busy: Callable[[], bool] = lambda: False) -> int:
        """The number of prompts that can be compared. Asks what is not yet known: a few prompts at a time while the
        engine `is_busy` with clients.
        """
        while True:
            async with self._asking:
                n_missing = min(self._n_counted - len(self._of_base), len(self._prompts) - self._n_tried)
                if n_missing <= 0:
                    return len(self._of_base)
                n = min(n_missing, N_BESIDE_CLIENTS if is_busy() else self._concurrency)
                prompts = self._prompts[self._n_tried : self._n_tried + n]
                found = await asyncio.gather(*(self._begun(engine, base, prompt) for prompt in prompts))
                self._n_tried += n
                self._of_base += [predictions for predictions in found if predictions]

    async def compare(self, engine: Engine, version: str, margin: float) -> Retention:
        """The outcome of `version`. Answers that cannot change the verdict are not waited for."""
        n = len(self._of_base)
        most = tolerated(n, margin)

        async def is_lost(place: int) -> bool:
            return await self._is_lost(engine, version, self._of_base[place])

        def is_settled(answers: Mapping[int, bool]) -> bool:
            n_lost = sum(answers.values())
            return n_lost > most or n_lost + n - len(answers) <= most

        answers = await ask_until(is_lost, range(n), is_settled, self._concurrency)
        return Retention(
            n=n,
            n_lost=sum(answers.values()),
            margin=margin,
            n_asked=len(answers),
            n_open=n - len(answers),
            measure=Measure.PREDICTIONS,
        )

    async def _is_lost(self, engine: Engine, version: str, predictions: Sequence[Prediction]) -> bool:
        """Asks place by place, until one is like the base's."""
        for of_base in predictions:
            if drift(of_base.logprobs, await engine.next_logprobs(version, of_base.token_ids)) <= MAX_DRIFT:
                return False
        return True

    async def _begun(self, engine: Engine, base: str, prompt: Prompt) -> list[Prediction]:
        """The base's predictions at the places of its own answer. Empty if the engine refuses the prompt."""
        try:
            reply = await engine.chat(
                base, prompt.messages, tools=prompt.tools, max_tokens=PLACES[-1] + 1, priority=LOW_PRIORITY
            )
            return [
                Prediction(before, await engine.next_logprobs(base, before))
                for before in ([*reply.prompt_ids, *reply.token_ids[:place]] for place in _places(reply))
            ]
        except EngineUnavailable:
            raise
        except EngineError:
            return []


def _places(reply: Reply) -> list[int]:
    """The places within a reply. Not the one where it ends by itself: there a version that says nothing more is like
    the base.
    """
    if not reply.prompt_ids:
        raise EngineError("expected the prompt's token ids beside a reply, got none")
    n = len(reply.token_ids) - (reply.finish_reason == "stop")
    return [place for place in PLACES if place < max(1, n)]
