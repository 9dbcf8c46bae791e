"""Forgetting prompts: paired outcomes, and prompts left out if a version is known to answer them like the base."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from burnish.adapters.evidence.gate import binomial_upper, tolerated
from burnish.server.rollout.engine.engine import Reply
from burnish.server.rollout.forgetting_prompts import N_AUDITED, RetentionPrompt, RetentionSet
from tests.factories import user

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
    assert (found.n, found.n_base, found.n_candidate, found.n_lost, found.n_won) == (N, N, N - 2, 2, 0)
    assert engine.asked == {"base": N, "new": 10 + N_AUDITED} and found.n_asked == 10 + N_AUDITED
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
    assert (found.n_lost, found.n_asked + found.n_open, engine.asked["new"]) == (1, N, N)
    again = await outcome(Answering(), [-1, N, N + 7])  # missing places
    assert again.n_asked + again.n_open == N


@pytest.mark.parametrize("n_failing", range(MOST + 1))
async def test_what_cannot_change_a_pass_is_not_waited_for_and_counts_as_lost(n_failing: int) -> None:
    slow = range(20, 20 + MOST - n_failing)
    engine = Answering(*range(n_failing), slow=slow)
    found = await asyncio.wait_for(outcome(engine, ()), 20)
    assert (found.n_lost, found.n_open, found.n_candidate) == (n_failing, len(slow), N - MOST)
    assert found.loss_bound == binomial_upper(MOST, N) <= 0.1
    assert engine.n_cancelled == len(slow)


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
