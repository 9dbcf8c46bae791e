"""The ledger: numbers before files, rows spent exactly once, one learner at a time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlmodel import select

from burnish.adapters.registry import lifecycle
from burnish.config import Settings
from burnish.errors import LearnerError, Postponed
from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.journal.tables import AgentRow, InteractionRow, LeaseRow, SampleRow, StepRow, VersionRow
from burnish.learner.run.ledger import Ledger, OpenStep, Ready
from burnish.learner.run.scheduler import Scheduler
from burnish.learner.step.report import StepReport
from burnish.records import StepOutcome
from tests.factories import interaction, user
from tests.statements import noted, plans
from tests.turns import add_feedback, add_turn


@pytest.fixture
def ledger(any_journal: Journal) -> Ledger:
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    return Ledger(any_journal, "agent")


def ready(journal: Journal, *names: str, **changes: object) -> None:
    """Turns with a user's rating, the first of them the oldest."""
    for name in names:
        add_turn(journal, interaction([user(name)], interaction_id=name), is_ready=True, **changes)
        add_feedback(journal, name, 1.0, feedback_id=f"f-{name}")


def rows_of(ledger: Ledger) -> list[Ready]:
    return ledger.load(ledger.ready_ids(100))


def steps(journal: Journal) -> list[tuple[int, str, int]]:
    with journal.read() as session:
        rows = session.query(StepRow).order_by("version").all()
        return [(row.version, row.outcome, row.attempt) for row in rows]


def spent(journal: Journal) -> dict[str, int | None]:
    with journal.read() as session:
        return {row.interaction_id: row.spent_step for row in session.query(InteractionRow).all()}


def test_ready_turns_come_oldest_first_with_reward_and_session(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b", "c")
    add_turn(any_journal, interaction([user("x")], interaction_id="unjudged"))
    ready(any_journal, "fated", skip_reason="opted out")
    ready(any_journal, "spent", spent_step=1)
    add_turn(any_journal, interaction([user("x")], interaction_id="foreign", agent="other"), is_ready=True)
    assert ledger.ready_ids(100) == ["a", "b", "c"]
    assert ledger.ready_ids(2) == ["a", "b"]
    n_ready, oldest = ledger.count_ready()
    found = ledger.load(["c", "a"])
    assert n_ready == 3 and oldest == found[1].interaction.ended_at
    assert [row.interaction.interaction_id for row in found] == ["c", "a"]
    assert (found[1].reward.value, found[1].reward.source, list(found[1].reward.record_ids)) == (1.0, "user", ["f-a"])
    assert found[1].session_id == f"s-{found[1].interaction.request_id}"


def test_a_users_spent_turns_are_counted_and_kept_with_the_row(any_journal: Journal, ledger: Ledger) -> None:
    for name, who in (("a", "ann"), ("b", "ann"), ("c", "bea")):
        add_turn(any_journal, interaction([user(name)], interaction_id=name, user=who), is_ready=True)
        add_feedback(any_journal, name, 1.0, feedback_id=f"f-{name}")
    assert [row.n_earlier for row in ledger.load(["a", "c"])] == [0, 0]
    ledger.announce(ledger.open(0, ledger.load(["a", "c"])), "d")
    with any_journal.write() as session:
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate")
    later = ledger.load(["b"])
    assert [row.n_earlier for row in later] == [1]
    step = ledger.open(1, later)
    with any_journal.read() as session:
        assert session.get_one(SampleRow, (step.step_id, "b")).n_earlier == 1


def test_a_user_is_counted_under_any_key_and_a_key_under_any_name(any_journal: Journal, ledger: Ledger) -> None:
    said = {
        "a": {"user": "ann", "key_id": "key-1"},
        "b": {"user": "ann", "key_id": "key-2"},
        "c": {"quoted_user": "one", "key_id": "key-3"},
        "d": {"quoted_user": "two", "key_id": "key-3"},
        "e": {"user": "key-3", "key_id": "key-1"},
    }
    for name, who in said.items():
        add_turn(any_journal, interaction([user(name)], interaction_id=name, **who), is_ready=True)
        add_feedback(any_journal, name, 1.0, feedback_id=f"f-{name}")
    ledger.announce(ledger.open(0, ledger.load(["a", "c"])), "d")
    with any_journal.write() as session:
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate")
    assert [row.n_earlier for row in ledger.load(["b", "d", "e"])] == [1, 1, 0]


def test_an_empty_ledger_has_nothing(ledger: Ledger) -> None:
    assert ledger.ready_ids(10) == []
    assert ledger.count_ready() == (0, None)
    assert (ledger.live(), ledger.undecided(), ledger.interrupted(), ledger.history.unfinished()) == (
        0,
        None,
        None,
        set(),
    )


def test_opening_allocates_the_next_number_and_records_the_rows(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    step = ledger.open(0, rows_of(ledger))
    assert (step.version, step.parent, step.attempt) == (1, 0, 1)
    assert steps(any_journal) == [(1, "open", 1)]
    with any_journal.read() as session:
        rows = session.scalars(select(SampleRow.interaction_id).where(SampleRow.step_id == step.step_id))
        assert sorted(rows) == ["a", "b"]
    add_feedback(any_journal, "a", -1.0, feedback_id="late", created_at=9e9)
    with any_journal.read() as session:
        sample = session.get_one(SampleRow, (step.step_id, "a"))
        assert (sample.reward, sample.reward_source, sample.record_ids) == (1.0, "user", ["f-a"])


def test_numbers_are_never_used_again(any_journal: Journal, ledger: Ledger) -> None:
    numbers = []
    for skip_reason in ("fail", "close", "announce", "fail"):
        step = ledger.open(0, [])
        numbers.append(step.version)
        if skip_reason == "fail":
            ledger.fail(step, "no")
        elif skip_reason == "close":
            ledger.close(step, StepOutcome.EMPTY, "nothing")
        else:
            ledger.announce(step, "d")
    assert numbers == [1, 2, 3, 4]
    with any_journal.write() as session:  # a version without a record of its step
        session.add(
            VersionRow(agent="agent", version=9, parent=0, digest="d", state="retired", evidence={}, created_at=0.0)
        )
    assert ledger.open(0, []).version == 10


def test_rows_of_a_failed_step_come_back_once_and_are_spent_at_the_second_failure(
    any_journal: Journal, ledger: Ledger
) -> None:
    ready(any_journal, "a", "b")
    first = ledger.open(0, rows_of(ledger), attempt=1 + ledger.attempts_of(["a", "b"]))
    assert ledger.fail(first, "out of memory") is StepOutcome.SUPERSEDED
    assert ledger.ready_ids(10) == ["a", "b"]
    assert ledger.attempts_of(["a", "b"]) == 1
    second = ledger.open(0, rows_of(ledger), attempt=1 + ledger.attempts_of(["a", "b"]))
    assert (second.version, second.attempt) == (2, 2)
    assert ledger.fail(second, "out of memory") is StepOutcome.FAILED
    assert ledger.ready_ids(10) == []
    assert spent(any_journal) == {"a": second.step_id, "b": second.step_id}
    assert steps(any_journal) == [(1, "superseded", 1), (2, "failed", 2)]


def test_fresh_rows_have_no_attempts(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a")
    ledger.fail(ledger.open(0, rows_of(ledger)), "no")
    ready(any_journal, "b")
    assert [ledger.attempts_of(ids) for ids in (["a"], ["b"], ["a", "b"], [])] == [1, 0, 1, 0]


def test_a_failure_counts_only_for_the_rows_that_it_happened_to(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a")
    ledger.fail(ledger.open(0, rows_of(ledger)), "no")
    ready(any_journal, "b")
    second = ledger.open(0, rows_of(ledger), attempt=2)
    assert ledger.fail(second, "no") is StepOutcome.SUPERSEDED
    assert spent(any_journal) == {"a": second.step_id, "b": None}
    third = ledger.open(0, rows_of(ledger), attempt=2)
    assert ledger.fail(third, "no") is StepOutcome.FAILED
    assert spent(any_journal) == {"a": second.step_id, "b": third.step_id}


def test_a_version_that_forgot_gives_back_its_fresh_rows_alone(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a")
    ledger.fail(ledger.open(0, rows_of(ledger)), "no")
    ready(any_journal, "b")
    step = ledger.open(0, rows_of(ledger), attempt=2)
    ledger.announce(step, "digest")
    with any_journal.write() as session:
        lifecycle.refuse(session, "agent", step.version, reason="unlearned", evidence={}, gives_back=True)
    assert (spent(any_journal), ledger.undecided()) == ({"a": step.step_id, "b": None}, None)


def test_a_users_spent_turns_are_counted_once(any_journal: Journal, ledger: Ledger) -> None:
    for n, name in enumerate(("a", "b", "c")):
        ready(any_journal, name)
        for each in (ledger, Ledger(any_journal, "agent")):
            assert [row.n_earlier for row in rows_of(each)] == [n]
        ledger.close(ledger.open(0, rows_of(ledger)), StepOutcome.EMPTY, "nothing")
    ready(any_journal, "d")
    assert [row.n_earlier for row in rows_of(ledger)] == [3]
    with any_journal.write() as session:
        session.delete(session.get_one(InteractionRow, "a"))
    assert [row.n_earlier for row in rows_of(ledger)] == [3]  # what was counted is not looked at again


def test_a_step_whose_learner_died_is_found_and_an_announced_one_is_not(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a")
    announced = ledger.open(0, [])
    ledger.announce(announced, "d")
    assert ledger.interrupted() is None
    assert ledger.undecided() == 1
    step = ledger.open(0, rows_of(ledger), attempt=2)
    assert ledger.interrupted() == OpenStep(step.step_id, 2, 0, 2)
    assert ledger.history.unfinished() == set()
    ledger.fail(OpenStep(step.step_id, 2, 0, 2), "the learner ended in mid-step")
    assert ledger.history.unfinished() == {2}


def test_announcing_puts_a_version_on_trial_with_metrics_and_idle_rows(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    step = ledger.open(0, rows_of(ledger))
    ledger.announce(step, "digest", StepReport({"grad_norm": 0.5}, ["b"], logprob_changes={"a": -0.25}))
    with any_journal.read() as session:
        assert session.get_one(StepRow, step.step_id).metrics == {"grad_norm": 0.5}
        taken = session.get_one(SampleRow, (step.step_id, "a"))
        assert (taken.skipped, taken.logprob_change) == (None, -0.25)
        assert session.get_one(SampleRow, (step.step_id, "b")).skipped == "no advantage and no hint"
        version = lifecycle.version(session, "agent", 1)
        assert (version.state, version.parent, version.step_id, version.digest) == (
            "candidate",
            0,
            step.step_id,
            "digest",
        )
    assert spent(any_journal) == {"a": None, "b": None}  # the outcome is not known yet
    assert ledger.undecided() == 1
    with any_journal.write() as session:
        lifecycle.refuse(session, "agent", 1, reason="no", evidence={})
    assert ledger.undecided() is None
    assert spent(any_journal) == {"a": step.step_id, "b": step.step_id}


def test_rows_of_a_version_that_forgot_come_once_more(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    for attempt in (1, 2):
        assert ledger.attempts_of(["a", "b"]) == attempt - 1
        step = ledger.open(0, rows_of(ledger), attempt=attempt)
        ledger.announce(step, "digest")
        with any_journal.write() as session:
            lifecycle.refuse(session, "agent", attempt, reason="unlearned 9 of 96", evidence={}, gives_back=True)
        assert ledger.undecided() is None
        assert spent(any_journal) == (dict.fromkeys("ab", step.step_id) if attempt == 2 else {"a": None, "b": None})
    assert steps(any_journal) == [(1, "superseded", 1), (2, "refused", 2)]


def test_a_step_that_was_given_up_meanwhile_cannot_be_announced(any_journal: Journal, ledger: Ledger) -> None:
    """A learner that was presumed dead comes back. Its rows belong to another now, and must not teach twice."""
    ready(any_journal, "a")
    late = ledger.open(0, rows_of(ledger))
    ledger.fail(late, "the learner ended in mid-step")
    again = ledger.open(0, rows_of(ledger), attempt=2)
    with pytest.raises(LearnerError, match="step of v1 is superseded"):
        ledger.announce(late, "d")
    assert (ledger.history.unfinished(), ledger.undecided()) == ({1}, None)
    ledger.announce(again, "d")
    assert ledger.history.unfinished() == {1}


def test_a_turn_that_was_erased_comes_into_no_step(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    chosen = rows_of(ledger)
    with any_journal.write() as session:
        erasure.erase_turns(session, ["a"])
    with pytest.raises(Postponed, match="1 of 2 turns were erased"):
        ledger.open(0, chosen)
    assert steps(any_journal) == []


def test_the_report_of_a_step_that_an_erasure_ended_is_not_written(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    step = ledger.open(0, rows_of(ledger))
    with any_journal.write() as session:
        erasure.erase_turns(session, ["a"])
        lifecycle.give_back(session, step.step_id, StepOutcome.FAILED, "erased")
    ledger.fail(step, "too late", StepReport(hints={"a": "words of the erased turn"}))
    with any_journal.read() as session:
        assert set(session.exec(select(SampleRow.hint))) == {None}
    assert ledger.ready_ids(9) == ["b"]


def test_an_empty_step_spends_its_rows(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a")
    step = ledger.open(0, rows_of(ledger))
    ledger.close(step, StepOutcome.EMPTY, "no row had anything to teach", StepReport(idle=["a"]))
    assert steps(any_journal) == [(1, "empty", 1)]
    assert spent(any_journal) == {"a": step.step_id}


def test_discarded_turns_keep_the_reason_and_never_come_again(any_journal: Journal, ledger: Ledger) -> None:
    ready(any_journal, "a", "b")
    ready(any_journal, "c", spent_step=7)
    ledger.discard({"a": "stale: 9 versions behind", "c": "stale"})
    assert ledger.ready_ids(10) == ["b"]
    with any_journal.read() as session:
        assert session.get_one(InteractionRow, "a").skip_reason == "stale: 9 versions behind"
        assert session.get_one(InteractionRow, "c").skip_reason is None  # trained already: that is its outcome


def test_lag_counts_published_versions_only(any_journal: Journal, ledger: Ledger) -> None:
    for number, outcome in ((1, "published"), (2, "refused"), (3, "published"), (4, "superseded"), (5, "published")):
        with any_journal.write() as session:
            session.add(StepRow(agent="agent", version=number, parent=0, outcome=outcome, metrics={}, started_at=0.0))
            session.add(
                StepRow(agent="other", version=number, parent=0, outcome="published", metrics={}, started_at=0.0)
            )
    lag = ledger.history.lags(5)
    assert [lag(version) for version in (5, 4, 3, 2, 1, 0)] == [0, 1, 1, 2, 2, 3]
    back = ledger.history.lags(3)  # rolled back: the policy of 5 is no older than that of 3
    assert [back(version) for version in (5, 3, 1, 0)] == [0, 0, 1, 2]


def test_one_learner_at_a_time(any_journal: Journal, ledger: Ledger) -> None:
    assert ledger.acquire_lease("one", seconds=60)
    assert ledger.acquire_lease("one", seconds=60)
    assert not ledger.acquire_lease("two", seconds=60)
    assert Ledger(any_journal, "other").acquire_lease("two", seconds=60)
    with any_journal.write() as session:
        session.get_one(LeaseRow, "learner:agent").until = time.time() - 1
    assert ledger.acquire_lease("two", seconds=60)
    assert not ledger.acquire_lease("one", seconds=60)


def test_of_simultaneous_learners_one_gets_the_lease(any_journal: Journal, ledger: Ledger) -> None:
    for expired in (False, True):
        if expired:
            with any_journal.write() as session:
                session.get_one(LeaseRow, "learner:agent").until = 0.0
        gate = threading.Barrier(6)

        def race(name: int, gate: threading.Barrier = gate) -> bool:
            gate.wait(10)
            return ledger.acquire_lease(f"learner-{name}-{id(gate)}", seconds=60)

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(race, range(6))) == 1


def test_a_paused_agent_is_paused(any_journal: Journal, ledger: Ledger) -> None:
    assert not ledger.is_paused()
    with any_journal.write() as session:
        session.get_one(AgentRow, "agent").is_paused = True
    assert ledger.is_paused()


def test_waiting_turns_are_found_by_their_own_index(journal: Journal) -> None:
    """However many turns were trained on or left out: SQLite reads none of them."""
    ledger = Ledger(journal, "agent")
    ready(journal, "a")
    ready(journal, "left out", skip_reason="held out")
    with noted(journal.engine) as said:
        assert ledger.ready_ids(10) == ["a"]
        assert ledger.count_ready()[0] == 1
        Scheduler(Settings(), journal, pytest.fail)._look()  # type: ignore[arg-type]
    asked = [steps for statement, steps in plans(journal.engine, said) if "skip_reason" in statement]
    assert len(asked) == 3
    assert all(any("ix_interaction_waiting" in step for step in steps) for steps in asked)
