"""Permits: a judge is checked at its first start, and speaks only if it is fit. And what a console says of it."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish import config
from burnish.config import Settings
from burnish.journal import Journal, jobs, judge_checks
from burnish.journal.evidence import reward_of
from burnish.journal.tables import JudgeJob, JudgementRow, StepRow
from burnish.journal.turns import ask_judge
from burnish.judges import permits as module
from burnish.judges.calibration import golden
from burnish.judges.judge import JudgeUnavailable, Usage, identity
from burnish.judges.models.panel import Panel
from burnish.judges.permits import Permits
from burnish.judges.verdicts.verdict import PROMPT
from burnish.judges.worker import Worker
from burnish.records import Fitness, NextStateKind, StepOutcome
from burnish.rewards import NEXT_STATE
from tests.factories import interaction, user
from tests.turns import add_next_state, add_turn

GOOD, BAD = "thanks", "no bold please"


class Model:
    """Answers by the last words of the case: it knows `right`, and says `otherwise` to all else."""

    def __init__(self, model: str = "m", *, otherwise: str | Exception = "VERDICT: +1\nHINT: none") -> None:
        self.model, self.usage, self.otherwise, self.n = model, Usage(), otherwise, 0

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.n += 1
        await asyncio.sleep(0)
        if isinstance(self.otherwise, Exception):
            raise self.otherwise
        return [self.otherwise] * n

    async def close(self) -> None: ...


class Knowing(Model):
    """Knows the golden set of the test."""

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.n += 1
        await asyncio.sleep(0)
        text = messages[-1]["content"]
        return [f"VERDICT: {'+1' if GOOD in text else '-1' if BAD in text else '0'}\nHINT: none"] * n


@pytest.fixture(autouse=True)
def golden_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A golden set of 60 cases in place of the English one."""
    path = tmp_path / "golden.jsonl"
    with path.open("w") as file:
        for number in range(20):
            for said, score in ((GOOD, 1), ("and you?", 0), (BAD, -1)):
                case = {"messages": "hi", "reply": f"no. {number}", "next_state": said, "from": "user", "score": score}
                file.write(json.dumps(case) + "\n")
    monkeypatch.setattr(golden, "ENGLISH", path)
    monkeypatch.setattr(module, "QUIET", 0.0)


def settings_of(tmp_path: Path, **judge: Any) -> Settings:
    return Settings(state_dir=tmp_path, engine={"model": "some/model-7b"}, judge={"model": "m", **judge})  # type: ignore[arg-type]


async def run_until(permits: Permits, state: Fitness, journal: Journal, model: str = "m") -> None:
    """Run the permits until the judge has this state."""
    permits.begin()

    def is_over() -> bool:
        with journal.read() as session:
            return judge_checks.filed(session)[identity(model, PROMPT)].state == state

    await asyncio.wait_for(permits.run_forever(is_over, interval=0.0), 30)
    permits._look()


async def judge_a_turn(journal: Journal, judge: Model, permits: Permits) -> JudgeJob:
    """The job of one turn after the worker saw it."""
    add_turn(journal, interaction([user("hi")], "**hi**", interaction_id="t"))
    add_next_state(journal, "t", NextStateKind.USER_REPLY, user(BAD))
    with journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
    panel = Panel([judge], may_speak=permits.may_speak)
    await Worker(journal, panel, config.Judge(), silence=permits.silence).run_once()
    with journal.read() as session:
        return session.query(JudgeJob).one()


async def test_a_check_is_charged_to_no_agent(journal: Journal, tmp_path: Path) -> None:
    told: list[tuple[str, str, int]] = []
    charge = lambda agent, model, usage: told.append((agent, model, usage.n_votes))  # noqa: E731
    await run_until(Permits(journal, settings_of(tmp_path), [Knowing()], charge), Fitness.FIT, journal)
    assert told == [("", "m", 60)]


async def test_a_judge_that_knows_is_checked_and_speaks(journal: Journal, tmp_path: Path) -> None:
    judge = Knowing()
    permits = Permits(journal, settings_of(tmp_path), [judge])
    permits.begin()
    assert not permits.may_speak("m") and "has not been checked yet" in (permits.silence() or "")
    held = await judge_a_turn(journal, judge, permits)
    assert (held.state, judge.n) == ("held", 0), "not even before the check is over"
    await run_until(permits, Fitness.FIT, journal)
    assert (permits.may_speak("m"), permits.silence(), judge.n) == (True, None, 60)
    worker = Worker(journal, Panel([judge], may_speak=permits.may_speak), config.Judge(), silence=permits.silence)
    await worker.run_once()
    with journal.read() as session:
        reward = reward_of(session, "t")
    assert reward is not None and (reward.value, reward.source) == (-1.0, "judge")


@pytest.mark.parametrize("nonsense", ["VERDICT: +1\nHINT: none", "VERDICT: -1\nHINT: Be nice always.", "I like it."])
async def test_a_judge_that_answers_nonsense_is_unfit_and_never_asked(
    journal: Journal, tmp_path: Path, nonsense: str
) -> None:
    judge = Model(otherwise=nonsense)
    permits = Permits(journal, settings_of(tmp_path), [judge])
    await run_until(permits, Fitness.UNFIT, journal)
    assert judge.n == 24
    said = permits.silence() or ""
    assert said.startswith("the judge m (model-7b) is unfit: ") and "set judge.model to a stronger model" in said
    row = await judge_a_turn(journal, judge, permits)
    assert (row.state, row.error) == ("held", said)
    assert judge.n == 24
    with journal.read() as session:
        assert session.query(JudgementRow).count() == 0
        assert reward_of(session, "t") is None
    with pytest.raises(JudgeUnavailable, match="no judge is fit"):
        await Panel([judge], may_speak=permits.may_speak).ask([], 3)


async def test_a_known_judge_is_not_checked_again(journal: Journal, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    await run_until(Permits(journal, settings, [Knowing()]), Fitness.FIT, journal)
    judge = Knowing()
    again = Permits(journal, settings, [judge])
    again.begin()
    assert (again.silence(), judge.n) == (None, 0)


async def test_a_judge_that_does_not_answer_is_checked_later(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    judge = Knowing()
    permits = Permits(journal, settings_of(tmp_path), [judge])
    permits.begin()
    permits._judges = [Model(otherwise=JudgeUnavailable("the engine starts"))]
    await permits._check_next()
    with journal.read() as session:
        assert judge_checks.filed(session)[identity("m", PROMPT)].state == Fitness.UNCHECKED
    permits._judges = [judge]
    await run_until(permits, Fitness.FIT, journal)


async def test_one_process_checks_and_the_others_learn_of_it(journal: Journal, tmp_path: Path) -> None:
    settings, judge, other = settings_of(tmp_path), Knowing(), Knowing()
    first, second = Permits(journal, settings, [judge]), Permits(journal, settings, [other])
    second._name = "another process"
    first.begin()
    second.begin()
    with journal.write() as session:
        assert jobs.take_lease(session, "judge check:m", first._name, 60.0)
    await second._check_next()
    assert other.n == 0
    await run_until(first, Fitness.FIT, journal)
    second._look()
    assert second.silence() is None


@pytest.mark.parametrize(("delay", "is_awaited", "n_asked"), [(600.0, True, 0), (0.0, True, 60), (0.0, False, 0)])
async def test_a_check_waits_for_idle_time_but_turns_do_not_wait_for_ever(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float, is_awaited: bool, n_asked: int
) -> None:
    if is_awaited:
        add_turn(journal, interaction([user("hi")], interaction_id="t"), is_ready=True)
        with journal.write() as session:
            ask_judge(session, "t", "next")
    monkeypatch.setattr(module, "MAX_DELAY", delay)
    monkeypatch.setattr(module, "LOOK", 0.0)
    monkeypatch.setattr(module, "QUIET", 600.0)
    looks = iter(range(50))
    judge = Knowing()
    permits = Permits(journal, settings_of(tmp_path), [judge])
    permits.begin()
    await asyncio.wait_for(permits.run_forever(lambda: next(looks, None) is None, interval=0.0), 60)
    assert judge.n == n_asked


@pytest.mark.parametrize(("outcome", "n_asked"), [(StepOutcome.OPEN, 0), (StepOutcome.PUBLISHED, 60)])
async def test_a_check_waits_for_the_learner(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: StepOutcome, n_asked: int
) -> None:
    monkeypatch.setattr(module, "LOOK", 0.0)
    monkeypatch.setattr(module, "QUIET", 0.05)
    monkeypatch.setattr(module, "in_flight", lambda _: set())
    with journal.write() as session:
        session.add(StepRow(agent="agent", version=1, parent=0, outcome=outcome, metrics={}, started_at=0.0))
    judge = Knowing()
    permits = Permits(journal, settings_of(tmp_path), [judge])
    permits.begin()
    ends = time.monotonic() + 1.0
    await asyncio.wait_for(permits.run_forever(lambda: time.monotonic() > ends or judge.n >= 60, interval=0.0), 60)
    assert judge.n == n_asked


async def test_a_judge_on_another_server_is_checked_beside_clients(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET", 600.0)
    judge = Knowing("openai/m")
    settings = Settings(state_dir=tmp_path, engine={"model": "some/model-7b"}, judge={"model": "openai/m"})  # type: ignore[arg-type]
    await run_until(Permits(journal, settings, [judge]), Fitness.FIT, journal, "openai/m")


async def test_a_check_ends_with_its_process(journal: Journal, tmp_path: Path) -> None:
    class Slow(Knowing):
        async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
            await asyncio.sleep(0.05)
            return await super().answers(messages, n)

    judge = Slow()
    permits = Permits(journal, settings_of(tmp_path), [judge])
    permits.begin()
    await asyncio.wait_for(permits.run_forever(lambda: judge.n > 3, interval=0.0), 10)
    assert judge.n < 60
    assert not permits.may_speak("m")
    with journal.write() as session:
        assert jobs.take_lease(session, "judge check:m", "its successor", 60.0)


async def test_a_fit_fallback_judges_in_place_of_an_unfit_one(journal: Journal, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, fallback_model="second")
    first, second = Model(), Knowing("second")
    permits = Permits(journal, settings, [first, second])
    await run_until(permits, Fitness.FIT, journal, "second")
    assert (permits.may_speak("m"), permits.may_speak("second"), permits.silence()) == (False, True, None)
    with journal.read() as session:
        assert (module.sentence(session, settings) or "").endswith("; second judges in its place")
    answers = await Panel([first, second], may_speak=permits.may_speak).ask([{"role": "user", "content": BAD}], 1)
    assert answers.model == "second"


def test_a_check_holds_with_every_rubric(journal: Journal, tmp_path: Path) -> None:
    rubric = "A reply that promises a refund is bad."
    settings, bare = settings_of(tmp_path, rubrics={"support": rubric}), settings_of(tmp_path)
    with journal.write() as session:
        module.file(session, bare, "m")
        module.conclude(session, bare, "m", Fitness.UNFIT, "guesses", {})
        assert module.file(session, settings, "m") == Fitness.UNFIT  # with a rubric that is new
        rows = judge_checks.filed(session)
    assert {name: row.state for name, row in rows.items()} == {
        identity("m", PROMPT): "unfit",
        identity("m", PROMPT, rubric): "unfit",
    }


def test_another_model_behind_the_same_name_is_another_judge(journal: Journal, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    other = settings.model_copy(update={"engine": settings.engine.model_copy(update={"model": "some/model-1b"})})
    with journal.write() as session:
        module.file(session, settings, "m")
        module.conclude(session, settings, "m", Fitness.FIT, "", {})
        assert module.sentence(session, settings) is None
        said = module.sentence(session, other) or ""
        assert module.file(session, other, "m") == Fitness.UNCHECKED
    assert said.startswith("the judge m (model-1b) has not been checked yet; it is checked on 60 golden cases")


def test_without_a_journal_the_judge_is_unchecked(tmp_path: Path) -> None:
    assert "has not been checked yet" in (module.sentence(None, settings_of(tmp_path)) or "")


def test_the_sandboxs_judge_was_checked_in_advance(journal: Journal, tmp_path: Path) -> None:
    """If this fails, its model, prompt or golden set has changed: run `python -m benchmarks.judging.sandbox`."""
    known = json.loads(module.IN_ADVANCE.read_text())
    assert known["of"] == module.sandbox_judge()
    assert known["figures"]["n_cases"] == len(golden.load(golden.SHIPPED))
    assert known["figures"]["kappa_interval"][0] > 0.9 and known["figures"]["n_praised"] == 0
    settings = Settings(state_dir=tmp_path)
    assert module.sentence(None, settings) is None
    judge = Model("base")
    permits = Permits(journal, settings, [judge])
    permits.begin()
    assert (permits.silence(), permits.may_speak("base"), judge.n) == (None, True, 0)


def test_the_advance_holds_for_that_judge_alone(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Settings(state_dir=tmp_path, judge={"model": "base", "url": "http://127.0.0.1:9"})  # type: ignore[arg-type]
    assert module.sentence(None, elsewhere) is not None
    changed = tmp_path / "checked.json"
    known = json.loads(module.IN_ADVANCE.read_text())
    changed.write_text(json.dumps(known | {"of": known["of"] | {"prompt": "other"}}))
    monkeypatch.setattr(module, "IN_ADVANCE", changed)
    assert module.sentence(None, Settings(state_dir=tmp_path)) is not None
