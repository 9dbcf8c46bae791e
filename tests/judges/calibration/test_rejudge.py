"""Recorded turns judged again: compared with their earlier verdicts, and stored only on request."""

from collections.abc import Mapping, Sequence

import pytest

from burnish.journal import Journal
from burnish.journal.evidence import reward_of
from burnish.journal.tables import JudgementRow
from burnish.journal.turns import record_judgement
from burnish.judges.calibration import rejudge
from burnish.judges.calibration.calibrate import Terms
from burnish.judges.calibration.rejudge import Again
from burnish.judges.judge import JudgeUnavailable, Usage, identity
from burnish.judges.verdicts.verdict import PROMPT
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from tests.factories import interaction, judgement, user
from tests.turns import add_next_state, add_turn

TERMS = Terms(votes=3, min_agreement=0.6, deadline=5.0, concurrency=4)
NEW = identity("new", PROMPT)


class New:
    """Approves of everything that is thanked for. After `n_left` answers it is unavailable."""

    model = "new"

    def __init__(self, n_left: int = 1000) -> None:
        self.usage, self.n_left = Usage(), n_left

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.n_left -= 1
        if self.n_left < 0:
            raise JudgeUnavailable("gone")
        return [f"VERDICT: {'+1' if 'thanks' in messages[-1]['content'] else '-1'}\nHINT: none"] * n

    async def close(self) -> None: ...


def add(journal: Journal, name: str, came_back: str, *verdicts: tuple[str, int | None]) -> None:
    add_turn(journal, interaction([user("a")], interaction_id=name))
    add_next_state(journal, name, NextStateKind.USER_REPLY, user(came_back))
    with journal.write() as session:
        for at, (judge_id, score) in enumerate(verdicts):
            record_judgement(session, judgement(name, score, judge_id=judge_id, created_at=3000.0 + at), NEXT_STATE)


async def again(journal: Journal, judge: New | None = None, limit: int = 100, since: float = 0.0) -> list[Again]:
    with journal.read() as session:
        found = rejudge.recorded(session, agent="agent", since=since, limit=limit, but=NEW)
        asked = rejudge.questions(session, found)
    return await rejudge.judge_again(judge or New(), asked, TERMS)


async def test_old_and_new_verdicts_stand_beside_each_other(any_journal: Journal) -> None:
    add(any_journal, "a", "thanks", ("old/1", 1))
    add(any_journal, "b", "thanks", ("old/1", -1))
    add(any_journal, "c", "wrong", ("old/1", 1), ("older/2", -1))
    add(any_journal, "d", "wrong", ("old/1", None))
    add(any_journal, "e", "thanks")  # never judged
    told = await again(any_journal)
    assert [(each.old.turn, each.old.judge_id, each.has_changed) for each in told] == [
        ("d", "old/1", True),
        ("c", "older/2", False),
        ("b", "old/1", True),
        ("a", "old/1", False),
    ]
    figures = rejudge.compare(told)
    assert (figures["turns"], figures["both_gave_a_verdict"], figures["changed"], figures["failed"]) == (4, 3, 2, 0)
    assert figures["agreement"] == pytest.approx(2 / 3)
    assert figures["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (5 / 9))
    assert figures["table"] == {"+1": {"+1": 1}, "-1": {"+1": 1, "-1": 1}, "abstained": {"-1": 1}}
    with any_journal.read() as session:
        assert session.query(JudgementRow).count() == 5  # nothing was stored


async def test_a_stored_verdict_counts_as_the_latest_and_is_stored_once(any_journal: Journal) -> None:
    add(any_journal, "b", "thanks", ("old/1", -1))
    assert [rejudge.store(any_journal, await again(any_journal)) for _ in range(2)] == [1, 0]
    with any_journal.read() as session:
        rows = {row.judge_id: row.score for row in session.query(JudgementRow)}
        reward = reward_of(session, "b")
        found = rejudge.recorded(session, agent="agent", but=NEW)
    assert rows == {"old/1": -1, NEW: 1}
    assert reward is not None and reward.value == 1.0
    assert [each.judge_id for each in found] == ["old/1"]  # not compared with itself


async def test_the_newest_turns_since_a_moment(any_journal: Journal) -> None:
    for name in ("a", "b", "c"):
        add(any_journal, name, "thanks", ("old/1", 1))
    assert [each.old.turn for each in await again(any_journal, limit=2)] == ["c", "b"]
    with any_journal.read() as session:
        ended_at = (
            session.connection().exec_driver_sql("SELECT ended_at FROM interaction ORDER BY ended_at").scalars().all()
        )
    assert [each.old.turn for each in await again(any_journal, since=ended_at[1])] == ["c", "b"]


async def test_an_interruption_loses_one_round(any_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejudge, "AT_ONCE", 2)
    for name in ("a", "b", "c", "d"):
        add(any_journal, name, "thanks", ("old/1", 1))
    with any_journal.read() as session:
        asked = rejudge.questions(session, rejudge.recorded(session, agent="agent", but=NEW))
    with pytest.raises(JudgeUnavailable, match="gone; check that it is running"):
        await rejudge.judge_again(New(n_left=2), asked, TERMS, keep=lambda some: rejudge.store(any_journal, some))
    with any_journal.read() as session:
        assert [row.interaction_id for row in session.query(JudgementRow).filter_by(judge_id=NEW)] == ["d", "c"]
