"""What judging costs: charged by question, kept apart for questions side by side, and added up in the journal."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.listing.judge_figures import costs
from burnish.journal.tables import JudgeCostRow, JudgementRow
from burnish.journal.turns import ask_judge
from burnish.judges import process
from burnish.judges.judge import JudgeUnavailable, Usage, billed
from burnish.judges.models.costs import Costs
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.records import JudgedFor, NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.testing import StubEngine
from tests.factories import interaction, user
from tests.judges.servers import chat_response, serving
from tests.turns import add_next_state, add_turn

ASK = [{"role": "user", "content": "?"}]
NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""


class Metered:
    """Counts a prompt of as many tokens as the question has characters. With `fails` it answers nothing then."""

    def __init__(self, model: str = "metered", *, fails: bool = False) -> None:
        self.model, self.usage, self.fails = model, Usage(), fails

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        await asyncio.sleep(0.01)
        self.usage.add({"prompt_tokens": len(messages[-1]["content"]), "completion_tokens": n})
        if self.fails:
            raise JudgeUnavailable("cut off")
        return ["x"] * n

    async def close(self) -> None: ...


async def test_questions_side_by_side_are_charged_to_their_agents() -> None:
    told: list[tuple[str, str, Usage]] = []
    panel = Panel([Metered()], charge=lambda *spent: told.append(spent))
    asked = [("a", 3), ("bb", 2), ("cccc", 1)]
    await asyncio.gather(*(panel.ask([{"role": "user", "content": text}], n, agent=text) for text, n in asked))
    found = {agent: (u.n_requests, u.n_prompt_tokens, u.n_answer_tokens, u.n_votes) for agent, _, u in told}
    assert found == {"a": (1, 1, 3, 3), "bb": (1, 2, 2, 2), "cccc": (1, 4, 1, 1)}
    assert all(usage.seconds >= 0.01 for *_, usage in told)


async def test_a_judge_that_gives_no_answer_is_charged_and_so_is_the_next_one() -> None:
    told: list[tuple[str, str, Usage]] = []
    panel = Panel([Metered("first", fails=True), Metered("second")], charge=lambda *spent: told.append(spent))
    await panel.ask(ASK, 2, "agent")
    assert [(model, usage.n_prompt_tokens, usage.n_votes) for _, model, usage in told] == [
        ("first", 1, 0),
        ("second", 1, 2),
    ]


async def test_a_bill_within_another_is_part_of_it() -> None:
    judge = Metered()
    with billed() as whole:
        await asyncio.gather(*(Panel([judge]).ask(ASK, 1) for _ in range(3)))
    assert (whole.n_requests, whole.n_votes) == (3, 3) and whole.seconds > 0.0
    assert judge.usage.n_requests == 3 and judge.usage.n_votes == 0


async def test_tokens_are_those_that_the_server_counts() -> None:
    async def answer(_: object) -> object:
        return chat_response(["VERDICT: +1\nHINT: none"])

    async with serving(answer) as server:  # type: ignore[arg-type]
        judge = LocalJudge(server.url, "m")
        with billed() as bill:
            await Panel([judge]).ask(ASK, 1)
        await judge.close()
    assert (bill.n_requests, bill.n_prompt_tokens, bill.n_answer_tokens) == (1, 1, 1)


async def test_sums_of_several_processes_are_added_by_day_model_agent_and_purpose(any_journal: Journal) -> None:
    first, second = Costs(any_journal, lambda: NOON), Costs(any_journal, lambda: NOON)
    later = Costs(any_journal, lambda: NOON + 86_400.0)
    for each, n in ((first, 1), (second, 2), (first, 3), (later, 4)):
        panel = Panel([Metered()], charge=each.charge_for(JudgedFor.TURNS))
        await panel.ask(ASK, n, "agent.u-0123456789ab")  # counts as its parent
        each.keep()
        each.keep()  # nothing is counted twice
    first.charge_for(JudgedFor.CHECK)("", "metered", Usage(n_votes=9))
    first.charge_for(JudgedFor.TURNS)("other", "metered", Usage(n_votes=7))
    first.keep()
    with any_journal.read() as session:
        found = [(row["day"], row["purpose"], row["n_votes"]) for row in costs(session, "agent", NOON)]
        n_all = sum(row["n_votes"] for row in costs(session, None, NOON))
        n_later = [row["n_votes"] for row in costs(session, "agent", NOON + 86_400.0)]
    assert found == [("2026-01-02", "turns", 4), ("2026-01-01", "check", 9), ("2026-01-01", "turns", 6)]
    assert n_all == 4 + 9 + 6 + 7 and n_later == [4]


async def test_a_journal_that_does_not_answer_loses_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Costs(journal)
    charge = found.charge_for(JudgedFor.PAIRS)
    charge("agent", "m", Usage(n_votes=1))
    with monkeypatch.context() as patched:
        patched.setattr("burnish.judges.models.costs._increase", _away)
        with pytest.raises(OperationalError):
            found.keep()
    charge("agent", "m", Usage(n_votes=2))
    stops = iter([False])
    await found.run_forever(lambda: next(stops, True), 0.0)
    with journal.read() as session:
        (row,) = session.scalars(select(JudgeCostRow))
        assert (row.n_votes, row.purpose) == (3, "pairs")


async def test_a_judging_process_charges_the_agent_whose_turn_it_judged(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)  # the sandbox's judge was checked in advance
    journal = Journal.open(settings.journal_url)
    add_turn(journal, interaction([user("copy 1")], "**1**", interaction_id="t", agent="helper"))
    add_next_state(journal, "t", NextStateKind.USER_REPLY, user("no bold please"))
    with journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)

    def is_judged() -> bool:
        with journal.read() as session:
            return session.query(JudgementRow).count() > 0

    with StubEngine(["VERDICT: -1\nHINT: none"]) as engine:
        await asyncio.wait_for(process.run(settings, engine.url, "", is_judged), 30)
    with journal.read() as session:
        (row,) = costs(session, "helper", 0.0)
    assert (row["purpose"], row["model"], row["n_votes"], row["n_requests"]) == ("turns", "base", 3, 1)
    assert row["n_prompt_tokens"] > 0 and row["n_answer_tokens"] > 0
    journal.close()


def _away(*_: object) -> None:
    raise OperationalError("upsert", {}, Exception("away"))
