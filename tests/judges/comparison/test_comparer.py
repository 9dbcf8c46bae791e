"""The comparer: pairs are leased, asked about in both orders and stored once. A failure is reported and invents
nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from burnish import config
from burnish.journal import Journal, jobs
from burnish.journal.blobs import store
from burnish.journal.jobs import enqueue
from burnish.journal.tables import CompareJob, ComparisonRow
from burnish.judges.comparison.comparer import Comparer
from burnish.judges.judge import JudgeUnavailable, Usage
from burnish.judges.models.panel import Panel
from tests.factories import interaction, user
from tests.turns import add_turn


class Reader:
    """Prefers the reply with `good` in it in any place. Answers `noise` instead if it is set. Fails `n_failures` times
    first.
    """

    def __init__(self, good: str = "good", noise: str | None = None, n_failures: int = 0) -> None:
        self.model, self.usage = "reader", Usage()
        self.good, self.noise, self.n_failures = good, noise, n_failures

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        if self.n_failures:
            self.n_failures -= 1
            raise JudgeUnavailable("it is away")
        a, _, b = messages[-1]["content"].partition("<reply_B")
        which = "A" if self.good in a else "B" if self.good in b else "SAME"
        return [self.noise or f"BETTER: {which}"] * n

    async def close(self) -> None: ...


def add(journal: Journal, *replies: tuple[str, str]) -> None:
    """Pairs of a candidate's and the live version's replies on one turn each."""
    for number, (new, old) in enumerate(replies):
        turn = add_turn(journal, interaction([user(f"question {number}")], interaction_id=f"t{number}"))
        key: dict[str, Any] = {"agent": "agent", "version": 2, "interaction_id": turn}
        with journal.write() as session:
            digests = [store(session, {"role": "assistant", "content": text}) for text in (new, old)]
            session.add(
                ComparisonRow(
                    **key, baseline=1, candidate_digest=digests[0], baseline_digest=digests[1], created_at=1.0
                )
            )
            enqueue(session, CompareJob, f"agent@v2|{turn}", key)


def comparer(journal: Journal, judge: Reader, **changes: Any) -> Comparer:
    return Comparer(journal, Panel([judge], 5.0), config.Judge(concurrency=8), **changes)


def rows(journal: Journal) -> list[ComparisonRow]:
    with journal.read() as session:
        return session.query(ComparisonRow).order_by("interaction_id").all()


async def test_each_pair_is_decided_once_and_names_its_judge(any_journal: Journal) -> None:
    add(any_journal, ("good answer", "poor"), ("poor", "good answer"), ("one", "two"))
    at_work = comparer(any_journal, Reader())
    assert await at_work.run_once() == 3
    found = rows(any_journal)
    assert [row.outcome for row in found] == [1, -1, 0]
    assert all(len(row.votes) == 4 and row.judge_id.startswith("reader/") and row.reason is None for row in found)
    assert await at_work.run_once() == 0


async def test_both_orders_are_charged_to_the_agent(journal: Journal) -> None:
    add(journal, ("good answer", "poor"))
    told: list[tuple[str, str, int]] = []
    panel = Panel([Reader()], charge=lambda agent, model, usage: told.append((agent, model, usage.n_votes)))
    await Comparer(journal, panel, config.Judge()).run_once()
    assert told == [("agent", "reader", 2)] * 2


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        (Reader(noise="nice"), "too few answers could be read"),
        (Reader(n_failures=99), "left undecided: reader: it is away"),
    ],
)
async def test_an_undecided_pair_stays_open_with_its_reason(journal: Journal, judge: Reader, reason: str) -> None:
    add(journal, ("good answer", "poor"))
    await comparer(journal, judge, max_attempts=1).run_once()
    (row,) = rows(journal)
    assert row.outcome is None and reason in (row.reason or "")


async def test_a_judge_that_was_unavailable_is_asked_again(journal: Journal) -> None:
    add(journal, ("good answer", "poor"))
    at_work = comparer(journal, Reader(n_failures=1))
    await at_work.run_once()
    with journal.write() as session:
        assert jobs.counts(session, CompareJob) == {"queued": 1}
        session.query(CompareJob).one().run_after = 0.0
    await at_work.run_once()
    assert rows(journal)[0].outcome == 1


async def test_both_orders_of_a_pair_are_asked_of_one_judge(journal: Journal) -> None:
    """The first judge fails at one of the two orders, and the second one steps in there."""
    add(journal, ("good answer", "poor"))
    first, second = Reader(n_failures=1), Reader()
    second.model = "other"
    at_work = Comparer(journal, Panel([first, second], 5.0), config.Judge(concurrency=8))
    await at_work.run_once()
    (row,) = rows(journal)
    assert (row.outcome, row.judge_id) == (None, None)
    with journal.write() as session:
        job = session.query(CompareJob).one()
        assert "expected one judge for both orders of a pair, got other, reader" in (job.error or "")
        job.run_after = 0.0
    await at_work.run_once()
    assert rows(journal)[0].outcome == 1
