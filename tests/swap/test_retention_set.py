"""The retention set: paired outcomes, and prompts left out that a version is known to answer as the base does."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from server.engine import Reply
from server.retention import N_AUDITED, RetentionPrompt, RetentionSet
from tests.factories import user

N = 64
PROMPTS = [RetentionPrompt([user(f"question {i}")], (), re.compile("ok")) for i in range(N)]


class Answering:
    """An engine whose base always passes and whose candidate fails the prompts in `failing`."""

    url = "http://engine"

    def __init__(self, *failing: int) -> None:
        self.failing = failing
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
    ) -> Reply:
        self.asked[model] += 1
        if model == "new":
            self.limits.add(max_tokens)
        is_wrong = model == "new" and int(str(messages[0]["content"]).split()[1]) in self.failing
        return Reply({"content": "no" if is_wrong else "ok"}, "stop", 3)


async def outcome(engine: Any, unchanged: Sequence[int]) -> Any:
    return await RetentionSet(PROMPTS).compare(engine, "new", "base", 0.1, unchanged)


async def test_unchanged_prompts_are_not_asked_but_for_a_few() -> None:
    engine = Answering(0, 5)
    found = await outcome(engine, range(10, N))
    assert (found.n, found.n_base, found.n_candidate, found.n_lost, found.n_won) == (N, N, N - 2, 2, 0)
    assert engine.asked == {"base": N, "new": 10 + N_AUDITED} and found.n_asked == 10 + N_AUDITED
    assert engine.limits == {64}  # a few times the base's length, and no less than this


async def test_where_the_learner_was_wrong_all_prompts_are_asked() -> None:
    engine = Answering(*range(20, N))
    found = await outcome(engine, range(10, N))
    assert (found.n_lost, found.n_asked) == (N - 20, N)
    assert engine.asked["new"] == N


async def test_without_word_of_the_learner_all_are_asked() -> None:
    engine = Answering(1)
    found = await outcome(engine, ())
    assert (found.n_lost, found.n_asked, engine.asked["new"]) == (1, N, N)
    assert (await outcome(Answering(), [-1, N, N + 7])).n_asked == N  # places that there are not
