"""The registry: an alias moves by compare-and-set, and all that belongs to it happens in the same transaction."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from burnish.adapters.registry import lifecycle
from burnish.errors import Conflict, NotFound
from burnish.journal import Journal, jobs
from burnish.journal.tables import AliasRow, AuditRow, InteractionRow, LoadJob, SampleRow, StepRow, VersionRow
from burnish.records import StepOutcome, VersionState
from tests.factories import interaction, user
from tests.turns import add_turn


@pytest.fixture
def agent(any_journal: Journal) -> str:
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    return "agent"


def candidate(journal: Journal, number: int, rows: int = 2) -> list[str]:
    """A step with `rows` rows that published and announced `number`. Returns the rows' ids."""
    names = [add_turn(journal, interaction([user("a")], interaction_id=f"v{number}-row{i}")) for i in range(rows)]
    with journal.write() as session:
        step = StepRow(agent="agent", version=number, parent=number - 1, outcome="open", metrics={}, started_at=1.0)
        session.add(step)
        session.flush()
        assert step.step_id is not None
        for name in names:
            session.add(SampleRow(step_id=step.step_id, interaction_id=name, reward=1.0, record_ids=[]))
        lifecycle.announce(session, "agent", number, parent=number - 1, step_id=step.step_id, digest="d" * 64)
    return names


def promote(journal: Journal, number: int, expected: int) -> None:
    with journal.write() as session:
        lifecycle.promote(
            session, "agent", number, expected=expected, actor="gate", reason="passed", evidence={"n": 64}
        )


def aliases(journal: Journal) -> tuple[int | None, int | None]:
    with journal.read() as session:
        return lifecycle.alias(session, "agent"), lifecycle.alias(session, "agent", lifecycle.PREVIOUS)


def states(journal: Journal) -> dict[int, str]:
    with journal.read() as session:
        return {row.version: row.state for row in lifecycle.versions(session, "agent")}


def spent(journal: Journal, names: list[str]) -> set[int | None]:
    with journal.read() as session:
        return {session.get_one(InteractionRow, name).spent_step for name in names}


def step_of(journal: Journal, number: int) -> StepRow:
    with journal.read() as session:
        return session.query(StepRow).filter_by(version=number).one()


def audit(journal: Journal) -> list[tuple[str, str, str, str | None, str | None, str | None]]:
    with journal.read() as session:
        rows = session.query(AuditRow).order_by("audit_id").all()
        return [(row.actor, row.action, row.object, row.before, row.after, row.reason) for row in rows]


def test_an_agent_begins_at_the_base_and_stays_where_it_is(any_journal: Journal, agent: str) -> None:
    assert aliases(any_journal) == (0, None)
    candidate(any_journal, 1)
    promote(any_journal, 1, 0)
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    assert aliases(any_journal) == (1, 0)
    with any_journal.read() as session, pytest.raises(NotFound, match="no agent 'nobody'"):
        lifecycle.alias(session, "nobody")


def test_an_announced_version_waits_for_its_trial(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1)
    assert states(any_journal) == {1: "candidate"}
    assert aliases(any_journal) == (0, None)
    assert (step_of(any_journal, 1).outcome, spent(any_journal, names)) == ("open", {None})
    with any_journal.write() as session:
        (job,) = jobs.lease(session, LoadJob, "swapper")
        assert (job.subject, job.payload) == ("agent@v1", {"agent": "agent", "version": 1})


def test_a_promotion_does_everything_at_once(any_journal: Journal, agent: str) -> None:
    first, second = candidate(any_journal, 1), candidate(any_journal, 2)
    promote(any_journal, 1, 0)
    promote(any_journal, 2, 1)
    assert aliases(any_journal) == (2, 1)
    assert states(any_journal) == {1: VersionState.RETIRED, 2: VersionState.LIVE}
    steps = [step_of(any_journal, number) for number in (1, 2)]
    assert [step.outcome for step in steps] == [StepOutcome.PUBLISHED] * 2
    assert spent(any_journal, first) == {steps[0].step_id}
    assert spent(any_journal, second) == {steps[1].step_id}
    with any_journal.read() as session:
        row = lifecycle.version(session, "agent", 2)
        assert (row.evidence, row.reason) == ({"n": 64}, "passed")
        assert row.decided_at is not None
    assert audit(any_journal)[-1] == ("gate", "promote", "agent", "1", "2", "passed")


def test_a_promotion_that_lost_the_race_changes_nothing(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1) + candidate(any_journal, 2)
    promote(any_journal, 1, 0)
    before = audit(any_journal)
    with pytest.raises(Conflict, match=r"expected v0, found v1; look again"):
        promote(any_journal, 2, 0)
    assert aliases(any_journal) == (1, 0)
    assert states(any_journal) == {1: "live", 2: "candidate"}
    assert step_of(any_journal, 2).outcome == "open"
    assert spent(any_journal, names[2:]) == {None}
    assert audit(any_journal) == before


def test_of_promotions_at_the_same_moment_one_wins(any_journal: Journal, agent: str) -> None:
    for number in range(1, 6):
        candidate(any_journal, number, rows=1)
    gate = threading.Barrier(5)

    def race(number: int) -> int | None:
        gate.wait(10)
        try:
            promote(any_journal, number, 0)
        except Conflict:
            return None
        return number

    with ThreadPoolExecutor(5) as pool:
        (winner,) = [number for number in pool.map(race, range(1, 6)) if number is not None]
    assert aliases(any_journal) == (winner, 0)
    assert [number for number, state in states(any_journal).items() if state == "live"] == [winner]
    assert len([entry for entry in audit(any_journal) if entry[1] == "promote"]) == 1


def test_a_refusal_closes_the_step_and_spends_its_rows_with_the_reason(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1)
    with any_journal.write() as session:
        lifecycle.refuse(session, "agent", 1, reason="unlearned 9 of 64", evidence={"n_lost": 9})
    step = step_of(any_journal, 1)
    assert (step.outcome, step.reason) == ("refused", "unlearned 9 of 64")
    assert step.ended_at is not None
    assert spent(any_journal, names) == {step.step_id}
    assert aliases(any_journal) == (0, None)
    with any_journal.read() as session:
        row = lifecycle.version(session, "agent", 1)
        assert (row.state, row.reason, row.evidence) == ("refused", "unlearned 9 of 64", {"n_lost": 9})
    assert audit(any_journal)[-1][:3] == ("gate", "refuse", "agent@v1")


@pytest.mark.parametrize("to", [None, 1, 0])
def test_a_rollback_is_one_call_to_anywhere(any_journal: Journal, agent: str, to: int | None) -> None:
    for number in (1, 2, 3):
        candidate(any_journal, number)
        promote(any_journal, number, number - 1)
    with any_journal.write() as session:
        moved = lifecycle.rollback(session, "agent", actor="cli", to=to, reason="worse")
    target = 2 if to is None else to
    assert moved == (3, target)
    assert aliases(any_journal) == (target, 3)
    expected = {1: "retired", 2: "retired", 3: "retired"}
    assert states(any_journal) == expected | ({target: "live"} if target else {})
    assert audit(any_journal)[-1] == ("cli", "promote", "agent", "3", str(target), "worse")
    with any_journal.write() as session:  # and forward again
        assert lifecycle.rollback(session, "agent", actor="cli") == (target, 3)
    assert aliases(any_journal) == (3, target)


def test_a_rollback_to_nowhere_is_a_conflict(any_journal: Journal, agent: str) -> None:
    def roll(to: int | None) -> Callable[[], None]:
        def call() -> None:
            with any_journal.write() as session:
                lifecycle.rollback(session, "agent", actor="cli", to=to)

        return call

    with pytest.raises(Conflict, match="no previous version"):
        roll(None)()
    with pytest.raises(Conflict, match="is live already"):
        roll(0)()
    with pytest.raises(NotFound, match="no version agent@v7"):
        roll(7)()
    assert aliases(any_journal) == (0, None)


def test_a_rollback_leaves_the_outcome_of_steps_as_it_was(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1)
    promote(any_journal, 1, 0)
    before = step_of(any_journal, 1)
    with any_journal.write() as session:
        lifecycle.rollback(session, "agent", actor="cli", to=0)
        lifecycle.promote(session, "agent", 1, expected=0, actor="cli")
    after = step_of(any_journal, 1)
    assert (after.outcome, after.reason, after.ended_at) == (before.outcome, before.reason, before.ended_at)
    assert spent(any_journal, names) == {before.step_id}


def test_a_step_ends_once(any_journal: Journal, agent: str) -> None:
    candidate(any_journal, 1)
    step_id = step_of(any_journal, 1).step_id
    assert step_id is not None
    for outcome in (StepOutcome.REFUSED, StepOutcome.PUBLISHED):
        with any_journal.write() as session:
            lifecycle.close_step(session, step_id, outcome, outcome)
    assert step_of(any_journal, 1).outcome == "refused"


def test_a_superseded_step_gives_its_rows_back(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1)
    step_id = step_of(any_journal, 1).step_id
    assert step_id is not None
    with any_journal.write() as session:
        lifecycle.give_back(session, step_id, StepOutcome.FAILED, "died")
    assert (step_of(any_journal, 1).outcome, spent(any_journal, names)) == ("superseded", {None})


def test_a_row_keeps_the_step_that_spent_it_first(any_journal: Journal, agent: str) -> None:
    names = candidate(any_journal, 1)
    promote(any_journal, 1, 0)
    first = step_of(any_journal, 1).step_id
    candidate(any_journal, 2, rows=0)
    second = step_of(any_journal, 2).step_id
    with any_journal.write() as session:
        session.add(SampleRow(step_id=second, interaction_id=names[0], record_ids=[]))
    promote(any_journal, 2, 1)
    assert spent(any_journal, names) == {first}


def test_no_number_is_announced_twice(any_journal: Journal, agent: str) -> None:
    candidate(any_journal, 1)
    with pytest.raises(Exception, match=r"(?i)unique"), any_journal.write() as session:
        lifecycle.announce(session, "agent", 1, parent=0, step_id=None, digest="x")
    with any_journal.read() as session:
        assert session.query(VersionRow).count() == 1


def test_agents_do_not_share_versions(any_journal: Journal, agent: str) -> None:
    candidate(any_journal, 1)
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "other")
    with any_journal.write() as session, pytest.raises(NotFound):
        lifecycle.promote(session, "other", 1, expected=0, actor="cli")
    with any_journal.read() as session:
        assert lifecycle.versions(session, "other") == []
        assert session.get(AliasRow, ("other", "live")) is not None
