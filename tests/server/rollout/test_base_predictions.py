"""Predictions at the seam: collapsed versions are refused, sound ones and taught styles pass, whatever the base can."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS, Evidence, Measure, Probe, decide
from burnish.errors import EngineError, EngineUnavailable
from burnish.server.rollout.base_predictions import PLACES, Predictions
from burnish.server.rollout.engine.engine import Reply
from burnish.server.rollout.forgetting_prompts import RetentionPrompt, RetentionSet
from tests.factories import user

N_VOCAB, N_PROMPTS, MARGIN = 300, 120, 0.1
PROMPTS = [RetentionPrompt([user(f"question {i}")], (), re.compile("ok")) for i in range(N_PROMPTS)]
SOUND = Probe((-1.0,), (-1.0,), (-1.5,), (-1.5,), 1e-3)
Logits = Callable[[Sequence[int], list[float]], list[float]]


def base_logits(token_ids: Sequence[int]) -> list[float]:
    """A language of its own: what comes next depends on every token before."""
    rng = random.Random(str(list(token_ids)))
    return [rng.gauss(0.0, 3.0) for _ in range(N_VOCAB)]


def named(logits: Sequence[float]) -> dict[int, float]:
    likeliest = sorted(range(N_VOCAB), key=lambda i: -logits[i])[:20]
    total = math.log(math.fsum(math.exp(value) for value in logits))
    return {i: logits[i] - total for i in likeliest}


class Speaking:
    """An engine with a base that answers nonsense, and the version `new`, whose logits are the base's changed by
    `change`."""

    url = "http://engine"

    def __init__(
        self, change: Logits = lambda ids, logits: logits, *, refuses: Sequence[int] = (), n: int = 32
    ) -> None:
        self.change, self.refuses, self.n = change, refuses, n
        self.asked: Counter[tuple[str, str]] = Counter()
        self.places: Counter[int] = Counter()
        self.is_away = False

    async def chat(self, model: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        self._answer("chat", model)
        number = int(str(messages[0]["content"]).split()[1])
        if number in self.refuses:
            raise EngineError("the prompt has 900 tokens, and 128 are the most")
        prompt_ids, reply = [1000 + number], list[int]()
        n = min(self.n, int(options["max_tokens"]))
        while len(reply) < n:
            logits = base_logits([*prompt_ids, *reply])
            reply.append(logits.index(max(logits)))
        return Reply({"content": "gibberish"}, "stop" if n == self.n else "length", n, prompt_ids, reply)

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        self._answer("next", model)
        logits = base_logits(token_ids)
        if model != "new":
            return named(logits)
        self.places[len(token_ids) - 1] += 1
        return named(self.change(token_ids, logits))

    def _answer(self, method: str, model: str) -> None:
        if self.is_away:
            raise EngineUnavailable("connection refused")
        self.asked[method, model] += 1


def retention(record: BaseRecord | None = None) -> RetentionSet:
    return RetentionSet(PROMPTS, fallback=Predictions(PROMPTS), record=record, max_tokens=16)


async def outcome(change: Logits) -> Any:
    return await retention().compare(Speaking(change), "new", "base", MARGIN)  # type: ignore[arg-type]


def passes(found: Any) -> bool:
    return decide(Evidence(is_mechanical_checked=True, probe=SOUND, retention=found)).has_passed


def only(token: int) -> Logits:
    return lambda ids, logits: [12.0 if i == token else value / 9 for i, value in enumerate(logits)]


def uniform(ids: Sequence[int], logits: list[float]) -> list[float]:
    return [0.0] * N_VOCAB


def swapped(ids: Sequence[int], logits: list[float]) -> list[float]:
    return base_logits([ids[0] + 1, *ids[1:]])


def drowned(ids: Sequence[int], logits: list[float]) -> list[float]:
    """The same noise on every prediction, five times as loud as the base's own preferences."""
    rng = random.Random(7)
    return [value + rng.gauss(0.0, 15.0) for value in logits]


@pytest.mark.parametrize(
    "collapse", [uniform, only(7), only(299), swapped, drowned, lambda ids, logits: [-value for value in logits]]
)
async def test_a_collapsed_version_is_refused(collapse: Logits) -> None:
    found = await outcome(collapse)
    assert (found.n, found.measure) == (N_FORGETTING_PROMPTS, Measure.PREDICTIONS)
    verdict = decide(Evidence(is_mechanical_checked=True, probe=SOUND, retention=found))
    assert not verdict.has_passed and verdict.has_forgotten
    assert "predicts otherwise than the base on" in verdict.faults[0]


def steps(n: int, size: float = 0.3) -> Logits:
    """`n` steps one after the other, each some 0.05 nats a token long, in directions of their own."""

    def change(ids: Sequence[int], logits: list[float]) -> list[float]:
        rng = random.Random(f"{n} {list(ids)}")
        return [value + rng.gauss(0.0, size * math.sqrt(n)) for value in logits]

    return change


def begins_with(token: int) -> Logits:
    """Every reply begins with `token`. What comes after the base's own beginning is as it was, but for some steps."""
    later = steps(4)
    return lambda ids, logits: only(token)(ids, logits) if len(ids) == 1 else later(ids, logits)


@pytest.mark.parametrize("sound", [lambda ids, logits: logits, steps(1), steps(4), begins_with(7)])
async def test_small_steps_and_a_taught_beginning_pass(sound: Logits) -> None:
    assert passes(await outcome(sound))


@pytest.mark.parametrize(("share", "does_pass"), [(0.01, True), (0.15, False), (0.3, False)])
async def test_a_version_that_collapsed_on_some_prompts_is_counted(share: float, does_pass: bool) -> None:
    def partly(ids: Sequence[int], logits: list[float]) -> list[float]:
        return uniform(ids, logits) if random.Random(ids[0]).random() < share else logits

    assert passes(await outcome(partly)) is does_pass


async def test_a_sound_version_is_asked_once_a_prompt_and_the_base_once_for_all_versions() -> None:
    asked, engine = retention(), Speaking()
    for _ in range(2):
        assert passes(await asked.compare(engine, "new", "base", MARGIN))  # type: ignore[arg-type]
    assert engine.asked["chat", "base"] == N_PROMPTS + N_FORGETTING_PROMPTS
    assert engine.asked["next", "base"] == len(PLACES) * N_FORGETTING_PROMPTS
    assert engine.asked["next", "new"] <= 2 * N_FORGETTING_PROMPTS
    assert engine.places.keys() == {0}


async def test_the_end_of_the_bases_answer_is_no_place() -> None:
    """A version that always ends at once is like the base there, and nowhere else."""
    for n, places in ((1, {0}), (5, {0}), (6, {0, 4}), (9, {0, 4})):
        engine = Speaking(uniform, n=n)
        await retention().compare(engine, "new", "base", MARGIN)  # type: ignore[arg-type]
        assert set(engine.places) == places


async def test_prompts_that_the_engine_refuses_are_passed_over() -> None:
    engine = Speaking(refuses=range(10))
    assert await Predictions(PROMPTS).ask_base(engine, "base") == N_FORGETTING_PROMPTS  # type: ignore[arg-type]


async def test_with_too_few_prompts_that_the_engine_accepts_there_is_no_evidence(tmp_path: Path) -> None:
    record = BaseRecord(tmp_path / "record.json", "id", has_fallback=True)
    asked, engine = retention(record), Speaking(refuses=range(N_PROMPTS - 63))
    found = await asked.compare(engine, "new", "base", MARGIN)  # type: ignore[arg-type]
    verdict = decide(Evidence(is_mechanical_checked=True, probe=SOUND, retention=found))
    assert verdict.faults == ("insufficient evidence: 63 forgetting prompts that the engine accepts, 64 needed",)
    assert not verdict.has_forgotten
    for standing in (asked.standing, record.standing()):
        assert standing is not None and standing.is_alarm
        assert "no version can go live: the base passes only 0 of 120 forgetting prompts" in standing.sentence
        assert "the engine accepts only 63 of them" in standing.sentence


async def test_the_record_says_that_predictions_are_compared(tmp_path: Path) -> None:
    record = BaseRecord(tmp_path / "record.json", "id", has_fallback=True)
    asked = retention(record)
    await asked.prepare(Speaking(), "base")  # type: ignore[arg-type]
    standing = record.standing()
    assert standing == asked.standing and standing is not None and not standing.is_alarm
    assert standing.sentence == (
        "the base passes only 0 of 120 forgetting prompts (64 are needed), so the gate compares predictions with the "
        "base's: it sees a collapse, but no lost ability; name a file of prompts that it passes in "
        "gate.forgetting_prompts"
    )
    again = retention(record)  # after a restart
    assert passes(await again.compare(engine := Speaking(), "new", "base", MARGIN))  # type: ignore[arg-type]
    assert engine.asked["chat", "base"] == N_FORGETTING_PROMPTS


async def test_without_a_fallback_too_few_prompts_stay_insufficient() -> None:
    """An operator's own file says what must not be lost. Nothing else is put in its place."""
    found = await RetentionSet(PROMPTS).compare(Speaking(), "new", "base", MARGIN)  # type: ignore[arg-type]
    assert (found.n, found.measure) == (0, Measure.ANSWERS)
    assert not passes(found)


async def test_an_engine_that_is_away_says_nothing() -> None:
    engine, asked = Speaking(), retention()
    await asked.prepare(engine, "base")  # type: ignore[arg-type]
    engine.is_away = True
    with pytest.raises(EngineUnavailable):
        await asked.compare(engine, "new", "base", MARGIN)  # type: ignore[arg-type]
