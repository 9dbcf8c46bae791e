"""Forgetting prompts: paired outcomes, and prompts left out if a version is known to answer them like the base."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS, BaseRecord
from burnish.adapters.evidence.gate import LostPrompt, binomial_upper, tolerated
from burnish.errors import EngineError
from burnish.server.rollout.engine.engine import Reply
from burnish.server.rollout.forgetting_prompts import (
    MAX_SHOWN,
    N_AUDITED,
    SEED_STEP,
    RetentionPrompt,
    RetentionSet,
)
from tests.factories import assistant, user

N, MOST = 64, 2
PROMPTS = [RetentionPrompt([user(f"question {i}")], (), re.compile("ok")) for i in range(N)]


class Answering:
    """An engine with a base that always passes and a candidate that fails the prompts in `failing`."""

    url = "http://engine"

    def __init__(self, *failing: int, slow: Sequence[int] = (), long: Sequence[int] = ()) -> None:
        self.failing = failing
        self.slow = slow
        self.long = long
        self.places: list[int] = []
        self.n_cancelled = 0
        self.asked: Counter[str] = Counter()
        self.limits: set[int] = set()

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        priority: int = 0,
        seed: int | None = None,
    ) -> Reply:
        self.asked[model] += 1
        place = int(str(messages[0]["content"]).split()[1])
        if model == "new":
            self.limits.add(max_tokens)
            self.places.append(place)
        if model == "new" and place in self.slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.n_cancelled += 1
                raise
        is_wrong = model == "new" and place in self.failing
        return Reply({"content": "no" if is_wrong else "ok"}, "stop", 30 if place in self.long else 3)


async def outcome(engine: Any, unchanged: Sequence[int]) -> Any:
    return await RetentionSet(PROMPTS).compare(engine, "new", "base", 0.1, unchanged)


def audited(told: Sequence[int]) -> list[int]:
    """The prompts among `known` that are asked all the same.

    They are drawn from the first half, where all answers have the same length.
    """
    return random.Random("new").sample(told[: len(told) // 2], N_AUDITED)


async def test_unchanged_prompts_are_not_asked_but_for_a_few() -> None:
    engine = Answering(0, 5)
    found = await outcome(engine, range(10, N))
    assert (found.n, found.n_lost) == (N, 2)
    assert found.n_asked == 10 + N_AUDITED
    # the base passes every prompt thrice, and what the candidate failed is asked once more
    assert engine.asked == {"base": N_BASE_ANSWERS * N, "new": 10 + N_AUDITED + 2}
    assert engine.limits == {64}  # a few times the base's length, and at least this


async def test_where_the_learner_was_wrong_all_prompts_are_asked() -> None:
    wrong = audited(range(10, N))[0]
    found = await outcome(engine := Answering(wrong), range(10, N))
    assert (found.n_lost, found.n_asked + found.n_open) == (1, N)
    assert engine.asked["new"] >= N - MOST


async def test_nobody_waits_for_an_audit_of_a_long_answer() -> None:
    long = range(N // 2)
    await outcome(engine := Answering(long=long), range(N))
    assert len(engine.places) == N_AUDITED and not {*engine.places} & {*long}


async def test_without_word_of_the_learner_all_are_asked() -> None:
    engine = Answering(1)
    found = await outcome(engine, ())
    assert (found.n_lost, found.n_asked + found.n_open, engine.asked["new"]) == (1, N, N + 1)
    again = await outcome(Answering(), [-1, N, N + 7])  # missing places
    assert again.n_asked + again.n_open == N


@pytest.mark.parametrize("n_failing", range(MOST + 1))
async def test_what_cannot_change_a_pass_is_not_waited_for_and_counts_as_lost(n_failing: int) -> None:
    slow = range(20, 20 + MOST - n_failing)
    engine = Answering(*range(n_failing), slow=slow)
    found = await asyncio.wait_for(outcome(engine, ()), 20)
    assert (found.n_lost, found.n_open) == (n_failing, len(slow))
    assert found.loss_bound == binomial_upper(MOST, N) <= 0.1
    assert engine.n_cancelled == len(slow)


async def test_the_evidence_names_the_prompts_that_were_lost() -> None:
    found = await outcome(Answering(3, 1), ())
    assert found.lost == (LostPrompt("question 1", "no"), LostPrompt("question 3", "no"))
    talk = [user("question 0"), assistant("yes"), user("?" * 500)]
    long = RetentionSet([RetentionPrompt(talk, (), re.compile("ok")), *PROMPTS[1:]])
    (lost,) = (await long.compare(Answering(0), "new", "base", 0.1)).lost
    assert lost.prompt.startswith("user: question 0\nassistant: yes\nuser: ??")
    assert len(lost.prompt) == MAX_SHOWN + 1 and lost.prompt.endswith("?…")


async def test_what_cannot_mend_a_failure_is_not_waited_for() -> None:
    engine = Answering(*range(MOST + 1), slow=range(20, 30))
    found = await asyncio.wait_for(outcome(engine, ()), 20)
    assert found.n_lost == MOST + 1 and found.loss_bound > 0.1
    assert engine.n_cancelled == 10


async def test_an_audited_answer_is_always_waited_for() -> None:
    """The learner's report is believed because of these."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outcome(Answering(slow=audited(range(N))[:1]), range(N)), 0.3)


@pytest.mark.parametrize(("n", "margin", "most"), [(64, 0.1, MOST), (96, 0.1, 4), (64, 0.01, -1), (64, 1.0, 64)])
def test_the_most_that_may_be_lost_is_the_most_that_passes(n: int, margin: float, most: int) -> None:
    assert tolerated(n, margin) == most
    assert most < 0 or binomial_upper(most, n) <= margin
    assert most == n or binomial_upper(most + 1, n) > margin


class Lucky(Answering):
    """The candidate fails each prompt of `lucky` greedily, and passes it in its second answer."""

    def __init__(self, lucky: Sequence[int]) -> None:
        super().__init__()
        self.lucky = lucky

    async def chat(self, model: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        reply = await super().chat(model, messages, **options)
        place = int(str(messages[0]["content"]).split()[1])
        if model == "new" and place in self.lucky:
            return Reply({"content": "ok" if options["temperature"] > 0.0 else "no"}, "stop", 3)
        return reply


async def test_a_candidate_has_lost_only_what_it_fails_twice() -> None:
    found = await outcome(Lucky(range(10)), ())
    assert (found.n, found.n_lost) == (N, 0)


async def test_the_base_is_asked_until_enough_prompts_count() -> None:
    asked = RetentionSet(PROMPTS, n_counted=20, concurrency=8)
    engine = Answering()
    assert [*await asked.ask_base(engine, "base")] == [*range(20)]
    assert engine.asked["base"] == 24 * N_BASE_ANSWERS


async def test_a_restart_asks_the_base_nothing_again(tmp_path: Path) -> None:
    record = BaseRecord(tmp_path / "cache" / "record.json", "base and prompts")
    before = await RetentionSet(PROMPTS, record=record).ask_base(Answering(), "base")
    engine = Answering()
    assert await RetentionSet(PROMPTS, record=record).ask_base(engine, "base") == before
    assert not engine.asked
    other = BaseRecord(tmp_path / "cache" / "record.json", "another base")
    assert await RetentionSet(PROMPTS, record=other).ask_base(engine, "base") == before
    assert engine.asked["base"] == N * N_BASE_ANSWERS


class Wavering(Answering):
    """The base fails the prompts of `failing` from its third answer on, and those of `lucky` in its second one."""

    def __init__(self, *failing: int, lucky: Sequence[int]) -> None:
        super().__init__(*failing)
        self.lucky = lucky
        self.seeds: list[int | None] = []

    async def chat(self, model: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        await super().chat(model, messages, **options)
        place, seed = int(str(messages[0]["content"]).split()[1]), options["seed"]
        self.seeds += [seed] if place == 0 else []
        is_wrong = (place in self.lucky and seed == place) or (place in self.failing and (seed or 0) > N)
        return Reply({"content": "no" if is_wrong else "ok"}, "stop", 3)


async def test_what_the_base_passes_by_luck_does_not_count() -> None:
    engine = Wavering(3, 4, lucky=[7])
    counted = await RetentionSet(PROMPTS).ask_base(engine, "base")
    assert sorted({*range(N)} - {*counted}) == [3, 4, 7]
    assert engine.asked["base"] == N_BASE_ANSWERS * (N - 3) + 2 + 2 * 3, "a prompt that failed is not asked again"
    assert engine.seeds == [None, *(SEED_STEP * n for n in range(N_BASE_ANSWERS - 1))]


class Refusing(Answering):
    """An engine with a context too short for the prompts in `failing`."""

    async def chat(self, model: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        if int(str(messages[0]["content"]).split()[1]) in self.failing:
            raise EngineError("the prompt has 900 tokens, and 512 are the most")
        return await super().chat(model, messages, **options)


async def test_a_prompt_that_the_engine_refuses_does_not_count() -> None:
    counted = await RetentionSet(PROMPTS).ask_base(Refusing(3, 4), "base")
    assert sorted({*range(N)} - {*counted}) == [3, 4]


@pytest.mark.parametrize(
    ("answers", "n_prompts", "said"),
    [
        ([], None, "still being asked the forgetting prompts (0 of 96 found)"),
        ([3] * 40, 400, "still being asked the forgetting prompts (40 of 96 found)"),
        ([3] * 40 + [None] * 60, 100, "the base passes only 40 of 100 forgetting prompts, and 64 are needed"),
        ([3] * 64 + [None] * 36, 100, None),
        ([3] * 96, 400, None),
    ],
)
def test_the_record_says_what_stands_in_the_way(
    tmp_path: Path, answers: list[int | None], n_prompts: int | None, said: str | None
) -> None:
    record = BaseRecord(tmp_path / "record.json", "id")
    if n_prompts is not None:
        record.write(answers, n_prompts)
    found = record.standing()
    assert (said in found.sentence) if said and found else found is said
