"""Prompts with checks, asked of every candidate: forgetting prompts, which the base answers too, and acceptance
prompts.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from burnish.adapters.evidence.gate import Retention, tolerated
from burnish.errors import ConfigError
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.engine.vllm import LOW_PRIORITY

log = structlog.get_logger()
N_AUDITED = 4
MIN_TOKENS = 64
_CALL = "<tool_call>\n{}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class RetentionPrompt:
    """One prompt. A reply passes if its text, with tool calls written as `name(arguments)`, matches `check` as a
    whole."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    check: re.Pattern[str]

    def passes(self, message: Mapping[str, Any]) -> bool:
        return self.check.fullmatch(shown(message)) is not None


def shown(message: Mapping[str, Any]) -> str:
    """A reply as checks see it: its text, then its tool calls in the model's Hermes form."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    calls = [json.dumps({"name": f["name"], "arguments": _loaded(f["arguments"])}) for f in functions]
    return "\n".join(part for part in [message.get("content") or "", *(_CALL.format(call) for call in calls)] if part)


def read_prompts(path: Path, limit: int | None, setting: str = "gate.forgetting_prompts") -> list[RetentionPrompt]:
    """The first `limit` prompts of a JSONL file, None for all. Raises ConfigError with the setting and the wrong
    line."""
    prompts: list[RetentionPrompt] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines[:limit], 1):
        try:
            item = json.loads(line)
            prompts.append(
                RetentionPrompt(item["messages"], item.get("tools") or (), re.compile(item["check"], re.DOTALL))
            )
        except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            raise ConfigError(f"{setting}: {path} line {number}: expected messages and check, got {error!r}") from error
    return prompts


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether an answer passed its check, and its length in tokens."""

    has_passed: bool
    n_tokens: int


class RetentionSet:
    """Asks the prompts. The base's answers are kept for the life of the process. `digest` names the prompts' file.

    At a `temperature` above 0 each prompt has a fixed random seed of its own, equal for every model. So two models
    differ by what they are and not by the draw.
    """

    def __init__(
        self,
        prompts: Sequence[RetentionPrompt],
        *,
        digest: str = "",
        concurrency: int = 24,
        max_tokens: int = 192,
        temperature: float = 0.0,
    ) -> None:
        self.digest = digest
        self._prompts = prompts
        self._concurrency = concurrency
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._base: list[Answer] | None = None

    @property
    def n(self) -> int:
        return len(self._prompts)

    async def n_passed(self, engine: Engine, model: str) -> int:
        """How many of all prompts `model` passes on this engine, whatever the base does."""
        limits = dict.fromkeys(range(len(self._prompts)), self._max_tokens)
        answers = await self._ask(engine, model, limits, lambda _: False)
        return sum(answer.has_passed for answer in answers.values())

    async def compare(
        self, engine: Engine, candidate: str, base: str, margin: float, unchanged: Collection[int] = ()
    ) -> Retention:
        """The paired outcome of `candidate` against `base` on this engine.

        To the prompts at `unchanged` the candidate gives the base's answer. `N_AUDITED` of them, with shorter answers,
        are asked all the same. If one outcome differs, all are asked. Answers that cannot change the verdict are not
        waited for.
        """
        places = range(len(self._prompts))
        if self._base is None:
            every = await self._ask(engine, base, {place: self._max_tokens for place in places}, lambda _: False)
            self._base = [every[place] for place in places]
        claimed = sorted({*unchanged} & {*places})
        audited = self._audited(candidate, claimed)
        skipped = set(claimed) - set(audited)
        before = [answer.has_passed for answer in self._base]
        most = tolerated(len(before), margin)

        def tally(asked: Collection[int], answers: Mapping[int, Answer]) -> tuple[int, int]:
            """How many of the base's passes are lost, and how many are still open."""
            lost = sum(before[place] and not answer.has_passed for place, answer in answers.items())
            return lost, sum(before[place] for place in asked if place not in answers)

        def is_settled(answers: Mapping[int, Answer]) -> bool:
            if not answers.keys() >= set(audited):
                return False
            lost, unknown = tally(asked, answers)
            return lost > most or lost + unknown <= most

        asked = set(places) - skipped
        answers = await self._ask(engine, candidate, self._limits(asked), is_settled)
        if any(answers[place].has_passed != before[place] for place in audited):
            log.warning("a version answers otherwise than its learner says; all prompts are asked", version=candidate)
            left, asked = set(places) - answers.keys(), set(places)
            known = answers
            answers = known | await self._ask(
                engine, candidate, self._limits(left), lambda more: is_settled({**known, **more})
            )
        n_lost, n_open = tally(asked, answers)
        won = sum(answer.has_passed and not before[place] for place, answer in answers.items())
        return Retention(
            n=len(before),
            n_base=sum(before),
            n_candidate=sum(before) - n_lost - n_open + won,
            n_lost=n_lost,
            n_won=won,
            margin=margin,
            n_asked=len(answers),
            n_open=n_open,
        )

    def _audited(self, candidate: str, claimed: Sequence[int]) -> list[int]:
        """A few of the unchanged prompts, drawn by the candidate's name from the half with the shorter answers."""
        assert self._base is not None
        base = self._base
        shorter = sorted(claimed, key=lambda place: (base[place].n_tokens, place))[: max(N_AUDITED, len(claimed) // 2)]
        return random.Random(candidate).sample(shorter, min(N_AUDITED, len(shorter)))

    def _limits(self, places: Iterable[int]) -> dict[int, int]:
        """The most tokens of each answer: a few times the base's, so that a candidate that cannot stop does not hold up
        its trial.
        """
        assert self._base is not None
        return {
            place: min(self._max_tokens, max(MIN_TOKENS, 4 * self._base[place].n_tokens or self._max_tokens))
            for place in places
        }

    async def _ask(
        self, engine: Engine, model: str, limits: Mapping[int, int], is_settled: Callable[[Mapping[int, Answer]], bool]
    ) -> dict[int, Answer]:
        """Answers by place: all of them, or those that had come when `is_settled` said that they are enough."""
        slots = asyncio.Semaphore(self._concurrency)

        async def ask(place: int, max_tokens: int) -> Answer:
            prompt = self._prompts[place]
            async with slots:
                reply = await engine.chat(
                    model,
                    prompt.messages,
                    tools=prompt.tools,
                    temperature=self._temperature,
                    max_tokens=max_tokens,
                    priority=LOW_PRIORITY,
                    seed=place if self._temperature else None,
                )
                return Answer(prompt.passes(reply.message), reply.n_tokens)

        answers: dict[int, Answer] = {}
        tasks = {asyncio.create_task(ask(place, limit)): place for place, limit in limits.items()}
        open_ = set(tasks)
        try:
            while open_ and not is_settled(answers):
                done, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
                answers |= {tasks[task]: task.result() for task in done}
        finally:
            for task in open_:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # several may have failed; one error is reported
        return answers


def _loaded(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
