"""When a judge is fit: each of the three demands by itself, and the early end of a hopeless check."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from burnish.judges.calibration import fitness
from burnish.judges.calibration.calibrate import Opinion
from burnish.judges.calibration.check import check
from burnish.judges.calibration.golden import GoldenCase
from burnish.judges.judge import JudgeRefused, JudgeUnavailable, Usage
from burnish.judges.verdicts.ballot import Result
from burnish.records import Fitness
from tests.factories import assistant, user


def case(score: int, number: int = 0, has_hint: bool | None = None) -> GoldenCase:
    right = {1: "good", 0: "so-so", -1: "bad"}[score]
    return GoldenCase(
        (user("?"),), assistant("it is 7"), (user(f"{right} no. {number}"),), "user", score, has_hint=has_hint
    )


def opinion(score: int | None, hint: str | None = None) -> Opinion:
    return Opinion("j", Result(score, 1.0, hint, (score,), 0))


UNREAD = Opinion("", None, "garbage")
CASES = [case(score, number) for number in range(40) for score in (1, 0, -1)]


def decided(says: Callable[[GoldenCase, int], Opinion]) -> tuple[Fitness, str]:
    return fitness.decide(fitness.figures(CASES, [says(each, at) for at, each in enumerate(CASES)]))


def test_a_judge_that_is_right_is_fit() -> None:
    assert decided(lambda each, at: opinion(each.score)) == (Fitness.FIT, "")
    assert decided(lambda each, at: opinion(each.score if at % 5 else 0))[0] is Fitness.FIT
    assert decided(lambda each, at: UNREAD if at % 11 == 0 else opinion(each.score))[0] is Fitness.FIT


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (lambda each, at: opinion(1), "its κ is 0.00 (95 %: 0.00 to 0.00), at least 0.4 is needed; it praises 1.00"),
        (lambda each, at: opinion(None), "its κ is 0.00"),  # who only abstains knows nothing
        (lambda each, at: opinion((1, 0, -1)[(at // 3) % 3]), "its κ is"),
        (lambda each, at: opinion(1 if each.score == -1 and at % 4 == 0 else each.score), "it praises 0.25 (95 %: "),
        (lambda each, at: UNREAD if at % 8 == 0 else opinion(each.score), "88% of its answers can be read, 90% are"),
        (lambda each, at: UNREAD, "0% of its answers can be read, 90% are needed; its agreement with the right"),
    ],
)
def test_each_demand_is_made(says: Callable[[GoldenCase, int], Opinion], reason: str) -> None:
    state, told = decided(says)
    assert state is Fitness.UNFIT and told.startswith(reason)


def test_hints_are_compared_where_the_set_has_a_label() -> None:
    cases = [case(-1, 0, True), case(-1, 1, True), case(1, 2, False), case(-1, 3)]
    found = fitness.figures(cases, [opinion(-1, "Be brief."), opinion(-1), opinion(1), opinion(-1, "Be kind.")])
    assert (found.n_hints, found.hint_agreement) == (3, 2 / 3)


class Model:
    """A judge that answers by `says` (the case's text to an answer). `n` counts its answers."""

    model = "m"

    def __init__(self, says: Callable[[str], str]) -> None:
        self.says, self.usage, self.n, self.n_at_once, self.n_most = says, Usage(), 0, 0, 0

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        assert n == 1, "one vote a case"
        self.n += 1
        self.n_at_once += 1
        self.n_most = max(self.n_most, self.n_at_once)
        await asyncio.sleep(0)
        self.n_at_once -= 1
        return [self.says(messages[-1]["content"])]

    async def close(self) -> None: ...


def knowing(text: str) -> str:
    return f"VERDICT: {'+1' if 'good no' in text else '-1' if 'bad no' in text else '0'}\nHINT: none"


async def test_a_judge_that_knows_is_asked_about_every_case_once() -> None:
    judge, ticks = Model(knowing), []
    found = await check(judge, CASES, lambda: ticks.append(1))
    assert (found.state, found.reason, found.figures.n_cases) == (Fitness.FIT, "", 120)
    assert judge.n == len(ticks) == 120 and judge.n_most <= 2


@pytest.mark.parametrize("answer", ["VERDICT: +1\nHINT: none", "VERDICT: -1\nHINT: none", "hello", ""])
async def test_nonsense_is_found_out_after_a_few_cases(answer: str) -> None:
    judge = Model(lambda text: answer)
    found = await check(judge, CASES)
    assert found.state is Fitness.UNFIT and judge.n == fitness.MIN_CASES
    assert "(after 24 of 120 cases)" in found.reason


async def test_a_judge_that_guesses_is_never_fit() -> None:
    rng = random.Random(1)
    for _ in range(20):
        judge = Model(lambda text: f"VERDICT: {rng.choice(['+1', '0', '-1'])}\nHINT: none")
        assert (await check(judge, CASES)).state is Fitness.UNFIT


async def test_a_judge_whose_server_refuses_the_questions_is_unfit_with_its_words() -> None:
    """Otherwise a judge with too short a context would be checked for ever."""

    def refuses(text: str) -> str:
        raise JudgeRefused("the judge answered 400: the maximum context length is 128 tokens")

    found = await check(judge := Model(refuses), CASES)
    assert found.state is Fitness.UNFIT and judge.n == fitness.MIN_CASES
    assert found.reason.startswith("0% of its answers can be read, 90% are needed")
    assert found.reason.endswith("the judge answered 400: the maximum context length is 128 tokens")


async def test_a_few_questions_that_are_refused_do_not_make_a_judge_unfit() -> None:
    judge = Model(knowing)

    def says(text: str) -> str:
        if judge.n in (5, 50):
            raise JudgeRefused("the judge answered 400: too long")
        return knowing(text)

    judge.says = says
    found = await check(judge, CASES)
    assert (found.state, found.reason, found.figures.n_readable) == (Fitness.FIT, "", 118)


async def test_a_judge_that_does_not_answer_is_not_called_unfit() -> None:
    judge = Model(knowing)

    def away(text: str) -> str:
        if judge.n > 30:
            raise JudgeUnavailable("503")
        return knowing(text)

    judge.says = away
    with pytest.raises(JudgeUnavailable, match="503"):
        await check(judge, CASES)
