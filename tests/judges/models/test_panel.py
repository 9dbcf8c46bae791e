"""Which judge is asked when one fails, when its circuit breaker opens, and what a day may cost."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from burnish.journal import Journal
from burnish.journal.turns import record_judgement
from burnish.judges.judge import JudgeRefused, JudgeUnavailable
from burnish.judges.models import panel as module
from burnish.judges.models.budget import DAY, Budget
from burnish.judges.models.panel import Panel
from burnish.rewards import NEXT_STATE
from tests.factories import judgement

ASK: list[dict[str, str]] = [{"role": "user", "content": "?"}]


class Scripted:
    """A judge that answers, fails or hangs as `mood` says."""

    def __init__(self, model: str, mood: str = "answers") -> None:
        self.model, self.mood, self.n_asked, self.is_closed = model, mood, 0, False

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.n_asked += 1
        if self.mood == "fails":
            raise JudgeUnavailable("status 429")
        if self.mood == "refuses":
            raise JudgeRefused("status 400")
        if self.mood == "hangs":
            await asyncio.sleep(60)
        return [self.model] * n

    async def close(self) -> None:
        self.is_closed = True


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def test_the_first_judge_that_answers_is_named() -> None:
    first, second = Scripted("first"), Scripted("second")
    panel = Panel([first, second], 5.0)
    assert (await panel.ask(ASK, 3)) == module.Answers("first", ["first"] * 3)
    first.mood = "fails"
    assert (await panel.ask(ASK, 1)).model == "second"
    await panel.close()
    assert first.is_closed and second.is_closed


async def test_a_judge_that_hangs_has_failed_when_its_time_is_over() -> None:
    assert (await Panel([Scripted("first", "hangs"), Scripted("second")], 0.02).ask(ASK, 1)).model == "second"
    with pytest.raises(JudgeUnavailable, match=r"first: no answer within 0\.02 s"):
        await Panel([Scripted("first", "hangs")], 0.02).ask(ASK, 1)


async def test_every_judge_s_reason_is_reported() -> None:
    with pytest.raises(JudgeUnavailable, match="first: status 429; second: status 429"):
        await Panel([Scripted("first", "fails"), Scripted("second", "fails")], 5.0).ask(ASK, 1)


async def test_a_question_that_all_refuse_is_told_from_judges_that_are_away() -> None:
    first, second = Scripted("first", "refuses"), Scripted("second", "refuses")
    panel = Panel([first, second], 5.0)
    for _ in range(2 * module.FAILURES):  # a judge that refuses is there, so its breaker stays closed
        with pytest.raises(JudgeRefused, match="first: status 400; second: status 400"):
            await panel.ask(ASK, 1)
    assert first.n_asked == 2 * module.FAILURES
    second.mood = "fails"
    with pytest.raises(JudgeUnavailable) as raised:
        await panel.ask(ASK, 1)
    assert not isinstance(raised.value, JudgeRefused)
    second.mood = "answers"
    assert (await panel.ask(ASK, 1)).model == "second"


async def test_the_circuit_breaker_opens_after_failures_and_then_lets_one_turn_through() -> None:
    clock = Clock()
    first, second = Scripted("first", "fails"), Scripted("second")
    panel = Panel([first, second], 5.0, clock)
    for _ in range(10):
        assert (await panel.ask(ASK, 1)).model == "second"
    assert first.n_asked == module.FAILURES
    clock.now += module.REST
    await asyncio.gather(*(panel.ask(ASK, 1) for _ in range(5)))
    assert first.n_asked == module.FAILURES + 1
    first.mood = "answers"
    clock.now += module.REST
    assert (await panel.ask(ASK, 1)).model == "first"
    assert (await panel.ask(ASK, 1)).model == "first"


async def test_the_last_judge_is_always_asked() -> None:
    lone = Scripted("lone", "fails")
    panel = Panel([lone], 5.0)
    for _ in range(6):
        with pytest.raises(JudgeUnavailable):
            await panel.ask(ASK, 1)
    assert lone.n_asked == 6


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(f"sqlite:///{tmp_path}/journal.db")


def store(journal: Journal, name: str, at: float) -> None:
    with journal.write() as session:
        assert record_judgement(session, judgement(name, 1, created_at=at), NEXT_STATE)


def test_a_day_s_votes_are_counted_over_all_processes(journal: Journal) -> None:
    clock = Clock(10 * DAY + 1000.0)
    budget = Budget(journal, 20, clock)
    assert budget.turns_left(3, 0, 4) == 4
    store(journal, "yesterday", 10 * DAY - 1.0)
    for n in range(4):
        store(journal, f"t{n}", clock.now - n)
    assert budget.turns_left(3, 0, 4) == 4  # other processes' votes are counted a moment later
    budget.note()
    assert budget.turns_left(3, 0, 4) == 2
    assert budget.turns_left(3, 1, 4) == 1
    budget.note()
    assert budget.turns_left(3, 0, 4) == 2  # none counted twice
    store(journal, "late", clock.now - 30.0)
    store(journal, "last", clock.now)
    budget.note()
    assert budget.turns_left(3, 0, 4) == 0
    assert 0 < budget.seconds_to_tomorrow <= DAY
    clock.now += DAY
    assert budget.turns_left(3, 0, 4) == 4


def test_without_a_limit_nothing_is_counted(journal: Journal) -> None:
    assert Budget(journal, 0).turns_left(3, 5, 7) == 7
