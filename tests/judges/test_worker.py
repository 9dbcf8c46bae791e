"""The judge's worker on a real journal: one verdict a turn, a failure never a verdict, a killed worker's turn judged
once.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from burnish import config
from burnish.journal import Journal, jobs
from burnish.journal.evidence import reward_of, settle
from burnish.journal.story import tell
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, JudgementRow
from burnish.journal.turns import ask_judge, judge_subject
from burnish.judges import prefilter
from burnish.judges import worker as module
from burnish.judges.judge import JudgeRefused, JudgeUnavailable, identity
from burnish.judges.models.panel import Panel
from burnish.judges.verdicts import words
from burnish.judges.verdicts.verdict import PROMPT
from burnish.judges.worker import Worker
from burnish.records import FeedbackSource, NextStateKind
from burnish.rewards import ACCEPTED, FEEDBACK, NEXT_STATE
from tests.factories import interaction, user
from tests.turns import add_feedback, add_next_state, add_turn

MINUS = "VERDICT: -1\nHINT: Write without bold text."


class FakeJudge:
    """Answers from a script: a text for all votes, a list of votes, or an error. `questions` keeps the questions."""

    model = "fake"

    def __init__(self, *script: str | list[str] | Exception) -> None:
        self.script = list(script)
        self.questions: list[str] = []
        self.n_at_once = self.n_most = 0

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.questions.append(messages[-1]["content"])
        self.n_at_once += 1
        self.n_most = max(self.n_most, self.n_at_once)
        await asyncio.sleep(0)
        self.n_at_once -= 1
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(reply, Exception):
            raise reply
        return [reply] * n if isinstance(reply, str) else reply

    async def close(self) -> None: ...


def make_worker(journal: Journal, judge: FakeJudge, **changes: Any) -> Worker:
    options: dict[str, Any] = {"lease_seconds": 60.0, "max_attempts": 2, "min_agreement": 0.0, "silence": lambda: None}
    options |= {name: changes.pop(name) for name in options if name in changes}
    chosen = config.Judge(**{"votes": 3, "concurrency": 4, **changes})
    return Worker(journal, Panel([judge], 60.0), chosen, **options)


def add_judgeable(journal: Journal, name: str = "t", *came_back: dict[str, Any]) -> None:
    add_turn(journal, interaction([user("copy 1")], "**1**", interaction_id=name))
    roles = {message["role"] for message in came_back}
    kind = NextStateKind.TOOL_RESULT if "tool" in roles else NextStateKind.USER_REPLY
    add_next_state(journal, name, kind, *came_back or (user("no bold please"),))
    with journal.write() as session:
        ask_judge(session, name, NEXT_STATE)


def job(journal: Journal, name: str = "t", origin: str = NEXT_STATE) -> JudgeJob:
    with journal.read() as session:
        return session.get_one(JudgeJob, judge_subject(name, origin))


def make_due(journal: Journal, name: str = "t") -> None:
    with journal.write() as session:
        session.get_one(JudgeJob, judge_subject(name, NEXT_STATE)).run_after = 0.0


def judgements(journal: Journal) -> list[JudgementRow]:
    with journal.read() as session:
        return list(session.query(JudgementRow).all())


def is_ready(journal: Journal, name: str = "t") -> bool:
    with journal.read() as session:
        return session.get_one(InteractionRow, name).is_ready


async def test_a_verdict_is_stored_once_with_its_votes_and_reason(journal: Journal) -> None:
    add_judgeable(journal)
    judge = FakeJudge([MINUS, MINUS, "garbage"])
    worker = make_worker(journal, judge)
    assert await worker.run_once() == 1
    assert await worker.run_once() == 0
    (row,) = judgements(journal)
    assert (row.interaction_id, row.judge_id, row.origin) == ("t", identity("fake", PROMPT), NEXT_STATE)
    assert (row.score, row.confidence, row.votes, row.n_failed) == (-1, 1.0, [-1, -1], 1)
    assert row.hint == "Write without bold text."
    assert job(journal).state == "done"
    assert is_ready(journal)
    with journal.read() as session:
        reward = reward_of(session, "t")
    assert reward is not None and (reward.value, reward.hint) == (-1.0, "Write without bold text.")


async def test_a_reply_without_content_is_judged_by_rule_and_no_model_is_asked(journal: Journal) -> None:
    add_turn(journal, interaction([user("copy 1")], "Solution:", interaction_id="t"))
    add_next_state(journal, "t", NextStateKind.USER_REPLY, user("great, thank you"))
    with journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
    judge = FakeJudge("VERDICT: +1")
    await make_worker(journal, judge).run_once()
    (row,) = judgements(journal)
    assert (row.judge_id, row.score, row.votes, row.reason) == (prefilter.identity(), -1, [], prefilter.OPENER)
    assert judge.questions == []
    assert is_ready(journal)


async def test_a_users_own_comment_on_an_empty_reply_is_a_hint(journal: Journal) -> None:
    add_turn(journal, interaction([user("copy 1")], "", interaction_id="t"))
    add_feedback(journal, "t", None, comment="you said nothing at all")
    with journal.write() as session:
        ask_judge(session, "t", FEEDBACK)
    await make_worker(journal, FakeJudge(MINUS)).run_once()
    (row,) = judgements(journal)
    assert (row.judge_id, row.hint, row.hint_status) == (words.identity(), "you said nothing at all", ACCEPTED)


async def test_votes_that_disagree_too_much_are_an_abstention_with_the_reason(journal: Journal) -> None:
    add_judgeable(journal)
    judge = FakeJudge(["VERDICT: +1", "VERDICT: +1", "VERDICT: -1", "VERDICT: 0"])
    await make_worker(journal, judge, votes=4, min_agreement=0.6).run_once()
    (row,) = judgements(journal)
    assert (row.score, row.confidence) == (None, 0.5)
    assert "0.50 of them agree, 0.6 are needed" in (row.reason or "")
    assert not is_ready(journal)


async def test_the_judge_reads_the_turn_and_what_came_back(journal: Journal) -> None:
    add_judgeable(journal)
    judge = FakeJudge("VERDICT: 0")
    await make_worker(journal, judge).run_once()
    for text in ('{"user": "copy 1"}', '{"assistant": "**1**"}', '{"user": "no bold please"}'):
        assert text in judge.questions[0]


async def test_a_tool_s_message_is_shown_as_a_tool_s(journal: Journal) -> None:
    add_judgeable(journal, "t", {"role": "tool", "tool_call_id": "c", "content": "error 7"}, user("go on"))
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge).run_once()
    assert '{"tool": "error 7"}\n{"user": "go on"}\n' in judge.questions[0]
    with journal.read() as session:
        reward = reward_of(session, "t")
    assert reward is not None and (reward.value, reward.hint) == (-1.0, None)


async def test_the_latest_words_of_a_user_are_the_hint_and_no_model_is_asked(journal: Journal) -> None:
    add_turn(journal, interaction([user("a")], interaction_id="t"))
    add_feedback(journal, "t", None, comment="shorter, please")
    add_feedback(journal, "t", -1.0, comment="no  bold\ntext please")
    add_feedback(journal, "t", -0.5)
    add_feedback(journal, "t", -1.0, comment="obey me always", source=FeedbackSource.HARNESS)
    with journal.write() as session:
        ask_judge(session, "t", FEEDBACK)
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge, silence=lambda: "none is fit").run_once()
    assert judge.questions == []
    (row,) = judgements(journal)
    assert (row.score, row.hint, row.hint_status, row.votes) == (-1, "no bold text please", ACCEPTED, [])
    with journal.read() as session:
        reward = reward_of(session, "t")
    assert reward is not None
    assert (reward.value, reward.source, reward.hint) == (-0.5, "user", "no bold text please")
    assert is_ready(journal)


async def test_words_that_have_changed_replace_the_earlier_ones_and_deleted_ones_are_no_hint(journal: Journal) -> None:
    add_turn(journal, interaction([user("a")], interaction_id="t"))
    for comment in ("no bold please", "no lists please"):
        add_feedback(journal, "t", -1.0, comment=comment)
        with journal.write() as session:
            ask_judge(session, "t", FEEDBACK, again=True)
        await make_worker(journal, FakeJudge(MINUS)).run_once()
        assert [row.hint for row in judgements(journal)] == [comment]
    with journal.write() as session:
        session.query(FeedbackRow).filter_by(comment="no lists please").update({"is_deleted": True})
        reward = reward_of(session, "t")
        ask_judge(session, "t", FEEDBACK, again=True)
    assert reward is not None and reward.hint is None
    await make_worker(journal, FakeJudge(MINUS)).run_once()
    assert [row.hint for row in judgements(journal)] == ["no bold please"]


@pytest.mark.parametrize("source", [FeedbackSource.USER, FeedbackSource.VERIFIER])
@pytest.mark.parametrize("rating", [1.0, -1.0])
async def test_a_turn_that_a_user_or_verifier_has_rated_is_not_judged(
    journal: Journal, source: FeedbackSource, rating: float
) -> None:
    """The word came after the job was queued."""
    add_judgeable(journal, "t", {"role": "tool", "tool_call_id": "c", "content": "error 7"})
    add_feedback(journal, "t", rating, source=source)
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge).run_once()
    assert judge.questions == [] and judgements(journal) == []
    assert job(journal).state == "done" and is_ready(journal)
    with journal.read() as session:
        reward = reward_of(session, "t")
    assert reward is not None and reward.value == rating


async def test_an_agent_cannot_spare_itself_the_judge(journal: Journal) -> None:
    add_judgeable(journal)
    add_feedback(journal, "t", 1.0, source=FeedbackSource.HARNESS)
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge).run_once()
    assert len(judge.questions) == 1


async def test_a_dislike_without_words_is_explained_by_the_next_message_and_praise_needs_no_hint(
    journal: Journal,
) -> None:
    for name, rating, comment in (("bad", -1.0, None), ("said", -1.0, "no bold please"), ("good", 1.0, None)):
        add_judgeable(journal, name)
        add_feedback(journal, name, rating, comment=comment)
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge).run_once()
    assert len(judge.questions) == 1
    (row,) = judgements(journal)
    assert (row.interaction_id, row.hint) == ("bad", "Write without bold text.")


async def test_without_a_fit_judge_a_turn_is_held_with_the_reason_and_judged_later(journal: Journal) -> None:
    add_judgeable(journal)
    judge = FakeJudge(MINUS)
    silent = make_worker(journal, judge, silence=lambda: "the judge base is unfit")
    for _ in range(2):
        await silent.run_once()
    row = job(journal)
    assert (row.state, row.attempts, row.error) == ("held", 0, "the judge base is unfit")
    with journal.read() as session:
        assert tell(session, "t")["training_status"] == "waits for a fit judge: the judge base is unfit"
    assert judge.questions == [] and judgements(journal) == [] and not is_ready(journal)
    add_feedback(journal, "t", 1.0)
    with journal.write() as session:
        settle(session, "t")
    assert is_ready(journal), "a rated turn waits for no judge"
    with journal.write() as session:
        session.query(FeedbackRow).delete()
        jobs.release(session, JudgeJob)
    await make_worker(journal, judge).run_once()
    assert [row.score for row in judgements(journal)] == [-1]


async def test_a_judge_that_is_found_fit_meanwhile_gets_the_turn(journal: Journal) -> None:
    add_judgeable(journal)
    said = iter(["the judge has not been checked yet", None])
    judge = FakeJudge(MINUS)
    await make_worker(journal, judge, silence=lambda: next(said, None)).run_once()
    assert job(journal).state == "queued" and judge.questions == []


async def test_a_rule_speaks_without_a_fit_judge(journal: Journal) -> None:
    add_turn(journal, interaction([user("copy 1")], "Solution:", interaction_id="t"))
    add_next_state(journal, "t", NextStateKind.USER_REPLY, user("and now?"))
    with journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
    await make_worker(journal, FakeJudge(MINUS), silence=lambda: "none is fit").run_once()
    assert [row.score for row in judgements(journal)] == [-1]


@pytest.mark.parametrize("failure", [JudgeUnavailable("no answer"), "garbage", []])
async def test_a_judge_that_fails_is_tried_again_and_then_the_turn_stays_unjudged(
    journal: Journal, failure: str | list[str] | Exception
) -> None:
    add_judgeable(journal)
    worker = make_worker(journal, FakeJudge(failure))
    for attempt, state in ((1, "queued"), (2, "dead")):
        assert await worker.run_once() == 1
        row = job(journal)
        assert (row.state, row.attempts) == (state, attempt)
        assert row.error
        make_due(journal)
    assert await worker.run_once() == 0
    assert judgements(journal) == []
    assert not is_ready(journal)
    with journal.read() as session:
        assert reward_of(session, "t") is None  # absent, not zero


async def test_a_second_try_can_succeed(journal: Journal) -> None:
    add_judgeable(journal)
    worker = make_worker(journal, FakeJudge(JudgeUnavailable("no"), MINUS))
    await worker.run_once()
    assert await worker.run_once() == 0  # not yet
    make_due(journal)
    await worker.run_once()
    assert [row.score for row in judgements(journal)] == [-1]
    assert job(journal).error is None


async def test_after_the_last_try_the_user_s_feedback_counts(journal: Journal) -> None:
    add_judgeable(journal)
    add_feedback(journal, "t", -1.0)
    with journal.write() as session:
        settle(session, "t")
    assert not is_ready(journal)
    await make_worker(journal, FakeJudge("garbage"), max_attempts=1).run_once()
    assert is_ready(journal)


async def test_an_abstention_is_a_verdict_but_no_reward(journal: Journal) -> None:
    add_judgeable(journal)
    await make_worker(journal, FakeJudge("VERDICT: abstain")).run_once()
    (row,) = judgements(journal)
    assert (row.score, row.votes) == (None, [None] * 3)
    assert not is_ready(journal)


async def test_turns_are_judged_side_by_side_up_to_the_limit(journal: Journal) -> None:
    for i in range(7):
        add_judgeable(journal, f"t{i}")
    judge = FakeJudge("VERDICT: +1")
    worker = make_worker(journal, judge, concurrency=3)
    assert [await worker.run_once() for _ in range(4)] == [3, 3, 1, 0]
    assert judge.n_most == 3
    assert len(judgements(journal)) == 7


async def test_one_turn_that_cannot_be_asked_about_does_not_stop_the_others(journal: Journal) -> None:
    with journal.write() as session:
        ask_judge(session, "no such turn", NEXT_STATE)
    add_judgeable(journal)
    worker = make_worker(journal, FakeJudge("VERDICT: +1"), max_attempts=1)
    assert await worker.run_once() == 2
    assert [row.interaction_id for row in judgements(journal)] == ["t"]
    assert job(journal, "no such turn").state == "dead"


async def test_a_lost_lease_stores_nothing(journal: Journal) -> None:
    """The slow worker answers when another one has the turn already."""
    add_judgeable(journal)
    quick = make_worker(journal, FakeJudge("VERDICT: +1"))

    class Slow(FakeJudge):
        async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
            await quick.run_once()
            return [MINUS] * n

    await make_worker(journal, Slow(MINUS), lease_seconds=-1.0).run_once()
    assert [row.score for row in judgements(journal)] == [1]


async def test_pauses_grow_while_the_judge_is_unavailable(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an engine's restart of a minute would use up the tries of all waiting turns."""
    for i in range(40):
        add_judgeable(journal, f"t{i}")
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    judge = FakeJudge(JudgeUnavailable("restarting"))
    worker = make_worker(journal, judge, concurrency=2, max_attempts=3)
    monkeypatch.setattr(FakeJudge, "answers", _failing)
    monkeypatch.setattr(module.asyncio, "sleep", nap)
    await worker.run_forever(lambda: sum(naps) > 60.0, interval=0.1)
    assert naps == sorted(naps) and naps[-1] == module.LONGEST_PAUSE
    assert len(naps) < 15
    with journal.read() as session:
        rows = session.query(JudgeJob).all()
        assert {row.state for row in rows} == {"queued"}
        # Each next try comes after an engine has had time to start again.
        assert min(row.run_after for row in rows if row.attempts) > time.time() + 10.0


async def test_verdicts_outlast_a_journal_that_is_away_for_a_moment(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        add_judgeable(journal, name)
    judge = FakeJudge(MINUS)
    naps: list[float] = []
    worker = make_worker(journal, judge, votes=1)
    store, n_failures = worker._store, iter(range(2))

    def is_away(outcomes: Any) -> None:
        if next(n_failures, None) is not None:
            raise OperationalError("UPDATE", {}, Exception("gone"))
        store(outcomes)

    async def nap(seconds: float) -> None:
        if seconds:
            naps.append(seconds)

    monkeypatch.setattr(worker, "_store", is_away)
    monkeypatch.setattr("burnish.journal.outage.asyncio.sleep", nap)
    await worker.run_forever(lambda: len(naps) > 3)
    assert sorted(row.interaction_id for row in judgements(journal)) == ["t", "u"]
    assert len(judge.questions) == 2


async def test_a_turn_that_the_judge_refuses_stops_no_other(journal: Journal) -> None:
    add_judgeable(journal, "long")
    worker = make_worker(journal, FakeJudge(JudgeRefused("the judge answered 400: too long")), max_attempts=1)
    assert await worker.run_once() == 1
    with journal.read() as session:
        job = session.query(JudgeJob).one()
    assert (job.state, worker._n_silent) == ("dead", 0)
    assert "too long" in (job.error or "")


async def _failing(self: FakeJudge, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
    raise JudgeUnavailable("restarting")


KILLED = """
import asyncio, os, signal, sys
from burnish import config
from burnish.journal import Journal
from burnish.judges.models.panel import Panel
from burnish.judges.worker import Worker

class Doomed:
    model = "fake"
    async def answers(self, messages, n):
        os.kill(os.getpid(), signal.SIGKILL)
    async def close(self): ...

worker = Worker(Journal.open(sys.argv[1]), Panel([Doomed()], 60.0), config.Judge(), lease_seconds=1000.0)
asyncio.run(worker.run_once())
"""


async def test_a_turn_whose_judge_was_killed_is_judged_once_after_the_lease(journal: Journal, sqlite_url: str) -> None:
    add_judgeable(journal)
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, sqlite_url, cwd=root)
    assert await child.wait() == -9
    worker = make_worker(journal, FakeJudge(MINUS))
    assert await worker.run_once() == 0
    with journal.write() as session:
        session.get_one(JudgeJob, judge_subject("t", NEXT_STATE)).lease_until = time.time() - 1.0
    assert await worker.run_once() == 1
    assert await worker.run_once() == 0
    assert [row.score for row in judgements(journal)] == [-1]


async def test_the_verdict_carries_the_name_of_the_judge_that_gave_it(journal: Journal) -> None:
    add_judgeable(journal)
    second = FakeJudge(MINUS)
    second.model = "second"
    panel = Panel([FakeJudge(JudgeUnavailable("500")), second], 60.0)
    await Worker(journal, panel, config.Judge()).run_once()
    (row,) = judgements(journal)
    assert row.judge_id == identity("second", PROMPT)


async def test_turns_beyond_the_day_s_votes_wait(journal: Journal) -> None:
    for i in range(5):
        add_judgeable(journal, f"t{i}")
    worker = make_worker(journal, FakeJudge("VERDICT: +1"), max_votes_per_day=7)
    assert [await worker.run_once() for _ in range(3)] == [2, 0, 0]
    assert len(judgements(journal)) == 2
    with journal.read() as session:
        waiting = [row for row in session.query(JudgeJob).all() if row.state == "queued"]
    assert [row.attempts for row in waiting] == [0, 0, 0]
