"""Calibration: a judge's figures by hand. Its failures are counted and never taken for verdicts."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from burnish.judges.calibration.calibrate import Terms, calibrate
from burnish.judges.calibration.golden import GoldenCase, Origin
from burnish.judges.judge import JudgeUnavailable, Usage

TERMS = Terms(votes=3, min_agreement=0.6, deadline=5.0, concurrency=4)


class Knowing:
    """Answers by the word that came back: a text for all votes, a list of votes, or an error."""

    model = "knowing"

    def __init__(self, **script: str | list[str] | Exception) -> None:
        self.script, self.usage, self.n_at_once, self.n_most = script, Usage(), 0, 0

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.n_at_once += 1
        self.n_most = max(self.n_most, self.n_at_once)
        await asyncio.sleep(0)
        self.n_at_once -= 1
        word = next(word for word in self.script if f'"{word}"}}' in messages[-1]["content"])
        said = self.script[word]
        if isinstance(said, Exception):
            raise said
        self.usage.add({"prompt_tokens": 10, "completion_tokens": 3})
        return [said] * n if isinstance(said, str) else said

    async def close(self) -> None: ...


def case(came_back: str, score: int, reply: str = "it is 7", origin: Origin = "user") -> GoldenCase:
    asked, said = {"role": "user", "content": "what is it?"}, {"role": "assistant", "content": reply}
    return GoldenCase((asked,), said, ({"role": "user", "content": came_back},), origin, score)


GOOD, BAD, ABSTAIN = "VERDICT: +1\nHINT: none", "VERDICT: -1\nHINT: none", "VERDICT: abstain\nHINT: none"


async def test_the_figures_are_those_worked_out_by_hand() -> None:
    judge = Knowing(
        thanks=GOOD, wrong=BAD, fooled=[GOOD, GOOD, BAD], odd=ABSTAIN, mute="?", away=JudgeUnavailable("503")
    )
    words = [("thanks", 1), ("thanks", 1), ("wrong", -1), ("fooled", -1), ("odd", 0), ("mute", 0), ("away", 1)]
    n_ticks = 0

    def tick() -> None:
        nonlocal n_ticks
        n_ticks += 1

    told = await calibrate(
        judge, [case(*each) for each in words] + [case("thanks", -1, reply="Solution:")], TERMS, tick
    )
    figures = told.figures
    assert n_ticks == 8
    assert (figures["cases"], figures["verdicts"], figures["by_rule"]) == (8, 5, 1)
    assert figures["accuracy"] == 4 / 5
    assert figures["right_of_all"] == 4 / 8
    assert figures["false_positive_rate"] == 1 / 3  # of three replies that were bad and got a verdict
    assert figures["kappa"] == pytest.approx((0.8 - 0.48) / 0.52)  # right 2:3, judged 3:2
    assert figures["calibration_error"] == pytest.approx((2 / 3) / 5)  # only the wrong one was uncertain
    assert (figures["abstained"], figures["failed"]) == (1 / 8, 2 / 8)
    assert (figures["votes_asked"], figures["votes_read"], figures["votes_failed"]) == (21, 15, 0)
    assert (figures["requests"], figures["prompt_tokens"], figures["answer_tokens"]) == (6, 60, 18)
    assert told.confusion[-1] == {1: 1, 0: 0, -1: 2, "abstained": 0, "failed": 0}
    assert told.confusion[0] == {1: 0, 0: 0, -1: 0, "abstained": 1, "failed": 1}
    assert [(number, opinion.outcome) for number, _, opinion in told.wrong] == [
        (4, 1),
        (5, "abstained"),
        (6, "failed"),
        (7, "failed"),
    ]
    assert 1 < judge.n_most <= TERMS.concurrency


async def test_an_unavailable_judge_is_one_error_with_the_remedy() -> None:
    judge = Knowing(thanks=JudgeUnavailable("connection refused"))
    with pytest.raises(JudgeUnavailable, match=r"connection refused; check that it is running and that judge\.model"):
        await calibrate(judge, [case("thanks", 1)] * 50, TERMS)


async def test_a_set_that_rules_settle_asks_no_judge() -> None:
    told = await calibrate(Knowing(), [case("thanks", -1, reply="")], TERMS)
    assert (told.figures["accuracy"], told.figures["votes_asked"], told.figures["votes_per_s"]) == (1.0, 0, 0.0)
    assert told.figures["kappa"] is None
