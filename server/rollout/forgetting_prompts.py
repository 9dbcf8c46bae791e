"""Prompts with checks, asked of every candidate: forgetting prompts, which the base answers too, and acceptance
prompts.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS, BaseRecord, Standing, standing
from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS, N_MIN_RETENTION, LostPrompt, Retention, tolerated
from burnish.errors import ConfigError, EngineError, EngineUnavailable
from burnish.server.rollout.base_predictions import Predictions
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.engine.vllm import LOW_PRIORITY
from burnish.server.rollout.in_parallel import N_BESIDE_CLIENTS, ask_until

log = structlog.get_logger()
N_AUDITED = 4
MAX_TOKENS = 192
GENERAL_MAX_TOKENS = 32
"""Longest answer to a prompt, in tokens. The general prompts have short right answers."""
MIN_TOKENS = 64
SECOND_TEMPERATURE = 0.5
"""Temperature of every further answer to a prompt."""
MAX_SHOWN = 400
"""Characters of a lost prompt, and of the answer to it, that the evidence holds."""
SEED_STEP = 1_000_000
"""Distance between the seeds of a prompt's further answers."""
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
    """Whether an answer passed its check, its length in tokens, and what it said."""

    has_passed: bool
    n_tokens: int
    text: str = ""


class RetentionSet:
    """Asks the prompts. `digest` names the prompts' file.

    A prompt counts for forgetting if the base passes it `N_BASE_ANSWERS` times: greedy, and sampled at
    `SECOND_TEMPERATURE`. What the base passes by luck, a sound version loses by luck. The prompts are asked in the
    file's order, until `n_counted` of them count. The results are kept in the `record` file, so that a restart asks
    nothing again.

    If the base passes too few of all prompts, `fallback` compares predictions instead. Without one the evidence is then
    insufficient.

    At a `temperature` above 0 each prompt has a fixed random seed of its own, equal for every model. So two models
    differ by what they are and not by the draw.
    """

    def __init__(
        self,
        prompts: Sequence[RetentionPrompt],
        *,
        digest: str = "",
        concurrency: int = 24,
        max_tokens: int = MAX_TOKENS,
        temperature: float = 0.0,
        n_counted: int = N_FORGETTING_PROMPTS,
        record: BaseRecord | None = None,
        fallback: Predictions | None = None,
    ) -> None:
        self.digest = digest
        self._prompts = prompts
        self._concurrency = concurrency
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._n_counted = n_counted
        self._record = record or BaseRecord(None, "")
        self._known = self._record.read()
        self._asking = asyncio.Lock()
        self._fallback = fallback
        self._n_comparable: int | None = None
        self._refusals: list[str] = []

    @property
    def n(self) -> int:
        return len(self._prompts)

    @property
    def standing(self) -> Standing | None:
        """What the gate lacks from the base. None if nothing."""
        return standing(self._known, self.n, self._n_comparable, has_fallback=self._fallback is not None)

    async def n_passed(self, engine: Engine, model: str) -> int:
        """How many of all prompts `model` passes on this engine, whatever the base does."""
        limits = dict.fromkeys(range(len(self._prompts)), self._max_tokens)
        answers = await self._ask(engine, model, limits, lambda _: False)
        return sum(answer.has_passed for answer in answers.values())

    async def ask_base(
        self, engine: Engine, base: str, is_busy: Callable[[], bool] = lambda: False
    ) -> Mapping[int, int]:
        """The prompts that count, each with the length of the base's answer in tokens. Asks what is not yet known: a
        few prompts at a time while the engine `is_busy` with clients.
        """
        known = self._known
        while True:
            async with self._asking:
                counted = _counted(known, self._n_counted)
                if len(counted) == self._n_counted or len(known) >= self.n:
                    self._tell_refusals()
                    return counted
                n = N_BESIDE_CLIENTS if is_busy() else self._concurrency
                places = range(len(known), min(self.n, len(known) + n))
                known += await asyncio.gather(*(self._of_base(engine, base, place) for place in places))
                self._record.write(known, self.n)

    async def prepare(
        self, engine: Engine, base: str, is_busy: Callable[[], bool] = lambda: False
    ) -> Mapping[int, int]:
        """Ask the base everything that a candidate's comparison needs. Returns the prompts that count."""
        counted = await self.ask_base(engine, base, is_busy)
        if (fallback := self._fallback_for(counted)) is not None:
            n = await fallback.ask_base(engine, base, is_busy)
            if n != self._n_comparable:
                self._n_comparable = n
                self._record.write(self._known, self.n, n)
        return counted

    def _fallback_for(self, counted: Mapping[int, int]) -> Predictions | None:
        """What compares a candidate in place of its answers. None if enough prompts count."""
        return self._fallback if len(counted) < N_MIN_RETENTION else None

    async def _of_base(self, engine: Engine, base: str, place: int) -> int | None:
        """The length of the base's answer if it passes, else None. A prompt that the engine refuses (its context may be
        too short) does not count.
        """
        try:
            first = last = await self._one(engine, base, place, self._max_tokens)
            for n in range(1, N_BASE_ANSWERS):
                if last.has_passed:
                    last = await self._again(engine, base, place, self._max_tokens, n)
            return first.n_tokens if last.has_passed else None
        except EngineUnavailable:
            raise
        except EngineError as error:
            self._refusals.append(str(error))
            return None

    def _tell_refusals(self) -> None:
        if self._refusals:
            log.warning("the engine refuses forgetting prompts", n=len(self._refusals), first=self._refusals[0])
            self._refusals.clear()

    async def compare(
        self, engine: Engine, candidate: str, base: str, margin: float, unchanged: Collection[int] = ()
    ) -> Retention:
        """The outcome of `candidate` on this engine, on the prompts that the base passes.

        A prompt is lost if the candidate fails it twice: greedy, and sampled at `SECOND_TEMPERATURE`. A greedy answer
        that any small change turns over is not yet a loss. To the prompts at `unchanged` the
        candidate gives the base's answer. `N_AUDITED` of them, with shorter answers, are asked all the same. If it
        fails one, all are asked. Answers that cannot change the verdict are not waited for.
        """
        counted = await self.prepare(engine, base)
        if (fallback := self._fallback_for(counted)) is not None:
            return await fallback.compare(engine, candidate, margin)
        claimed = sorted({*unchanged} & {*counted})
        audited = _audited(candidate, claimed, counted)
        most = tolerated(len(counted), margin)

        def is_settled(answers: Mapping[int, Answer]) -> bool:
            if not answers.keys() >= set(audited):
                return False
            lost = sum(not answer.has_passed for answer in answers.values())
            return lost > most or lost + len(asked) - len(answers) <= most

        asked = set(counted) - (set(claimed) - set(audited))
        answers = await self._ask(engine, candidate, self._limits(asked, counted), is_settled, is_asked_twice=True)
        if any(not answers[place].has_passed for place in audited):
            log.warning("a version answers otherwise than its learner says; all prompts are asked", version=candidate)
            left, asked = set(counted) - answers.keys(), set(counted)
            known = answers
            answers = known | await self._ask(
                engine,
                candidate,
                self._limits(left, counted),
                lambda more: is_settled({**known, **more}),
                is_asked_twice=True,
            )
        lost = tuple(self._lost(place, answers[place]) for place in sorted(answers) if not answers[place].has_passed)
        return Retention(
            n=len(counted),
            n_lost=len(lost),
            margin=margin,
            n_asked=len(answers),
            n_open=len(asked) - len(answers),
            lost=lost,
        )

    def _lost(self, place: int, answer: Answer) -> LostPrompt:
        return LostPrompt(_shortened(_told(self._prompts[place].messages)), _shortened(answer.text))

    def _limits(self, places: Iterable[int], counted: Mapping[int, int]) -> dict[int, int]:
        """The most tokens of each answer: a few times the base's, so that a candidate that cannot stop does not hold up
        its trial.
        """
        return {
            place: min(self._max_tokens, max(MIN_TOKENS, 4 * counted[place] or self._max_tokens)) for place in places
        }

    async def _one(
        self, engine: Engine, model: str, place: int, max_tokens: int, temperature: float | None = None, n: int = 1
    ) -> Answer:
        prompt, drawn_at = self._prompts[place], self._temperature if temperature is None else temperature
        reply = await engine.chat(
            model,
            prompt.messages,
            tools=prompt.tools,
            temperature=drawn_at,
            max_tokens=max_tokens,
            priority=LOW_PRIORITY,
            seed=place + SEED_STEP * (n - 1) if drawn_at else None,
        )
        return Answer(prompt.passes(reply.message), reply.n_tokens, shown(reply.message))

    async def _again(self, engine: Engine, model: str, place: int, max_tokens: int, n: int = 1) -> Answer:
        """A further answer to a prompt, the `n`-th, sampled with a seed of its own."""
        return await self._one(engine, model, place, max_tokens, SECOND_TEMPERATURE, n)

    async def _ask(
        self,
        engine: Engine,
        model: str,
        limits: Mapping[int, int],
        is_settled: Callable[[Mapping[int, Answer]], bool],
        *,
        is_asked_twice: bool = False,
    ) -> dict[int, Answer]:
        """Answers by place: all of them, or those that had come when `is_settled` said that they are enough.

        With `is_asked_twice` a prompt that was failed is asked once more, and the second answer counts.
        """

        async def ask(place: int) -> Answer:
            answer = await self._one(engine, model, place, limits[place])
            if answer.has_passed or not is_asked_twice:
                return answer
            return await self._again(engine, model, place, limits[place])

        return await ask_until(ask, limits, is_settled, self._concurrency)


def _counted(known: Sequence[int | None], n: int) -> dict[int, int]:
    """The first `n` prompts that the base passed, each with the length of its answer."""
    return dict(islice(((place, size) for place, size in enumerate(known) if size is not None), n))


def _told(messages: Sequence[Mapping[str, Any]]) -> str:
    """A prompt as text: its message, or a line for each message with its role."""
    texts = [said if isinstance(said := each.get("content"), str) else json.dumps(said) for each in messages]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"{each['role']}: {text}" for each, text in zip(messages, texts, strict=True))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _audited(candidate: str, claimed: Sequence[int], counted: Mapping[int, int]) -> list[int]:
    """A few of the unchanged prompts, drawn by the candidate's name from the half with the shorter answers."""
    shorter = sorted(claimed, key=lambda place: (counted[place], place))[: max(N_AUDITED, len(claimed) // 2)]
    return random.Random(candidate).sample(shorter, min(N_AUDITED, len(shorter)))


def _loaded(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
