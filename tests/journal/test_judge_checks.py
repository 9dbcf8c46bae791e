"""A judge's verdicts count only while it is fit, whenever they were made."""

import pytest

from burnish.journal import Journal, judge_checks
from burnish.journal.evidence import reward_of, settle
from burnish.journal.tables import InteractionRow, JudgeJob
from burnish.journal.turns import ask_judge, record_judgement
from burnish.records import Fitness, NextStateKind
from burnish.rewards import NEXT_STATE
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_next_state, add_turn


def file(journal: Journal, judge_id: str = "base/abc", model: str = "base", behind: str = "m", set_: str = "g") -> str:
    with journal.write() as session:
        return judge_checks.file(session, judge_id, model, behind, set_)


def conclude(journal: Journal, state: Fitness, *judge_ids: str) -> None:
    with journal.write() as session:
        judge_checks.conclude(session, judge_ids or ["base/abc"], state, "guesses", {"kappa": 0.0})


def add_judged(journal: Journal, name: str = "t", judge_id: str = "base/abc") -> None:
    add_turn(journal, interaction([user("a")], interaction_id=name))
    add_next_state(journal, name, NextStateKind.USER_REPLY)
    with journal.write() as session:
        record_judgement(session, judgement(name, -1, "Write without bold text.", judge_id=judge_id), NEXT_STATE)
        settle(session, name)


def outcome(journal: Journal, name: str = "t") -> tuple[float | None, bool]:
    """The turn's reward, and whether the learner may take it."""
    with journal.read() as session:
        reward = reward_of(session, name)
        return reward and reward.value, session.get_one(InteractionRow, name).is_ready


def test_verdicts_count_only_while_their_judge_is_fit(any_journal: Journal) -> None:
    assert file(any_journal) == Fitness.UNCHECKED
    add_judged(any_journal)
    assert outcome(any_journal) == (None, False)
    conclude(any_journal, Fitness.FIT)
    assert outcome(any_journal) == (-1.0, True)
    conclude(any_journal, Fitness.UNFIT)
    assert outcome(any_journal) == (None, False), "also those made before"
    add_feedback(any_journal, "t", 0.5)
    conclude(any_journal, Fitness.UNFIT)
    assert outcome(any_journal) == (0.5, True), "a user needs no judge"


def test_a_judge_is_unchecked_again_when_its_model_or_the_golden_set_changes(any_journal: Journal) -> None:
    file(any_journal)
    conclude(any_journal, Fitness.FIT)
    add_judged(any_journal)
    assert file(any_journal) == Fitness.FIT
    assert file(any_journal, behind="another") == Fitness.UNCHECKED
    assert outcome(any_journal) == (None, False)
    conclude(any_journal, Fitness.FIT)
    assert file(any_journal, behind="another", set_="newer") == Fitness.UNCHECKED


def test_one_judges_fitness_says_nothing_about_another(any_journal: Journal) -> None:
    file(any_journal)
    file(any_journal, "other/abc", "other")
    add_judged(any_journal, "t")
    add_judged(any_journal, "u", "other/abc")
    conclude(any_journal, Fitness.FIT, "other/abc")
    assert (outcome(any_journal, "t"), outcome(any_journal, "u")) == ((None, False), (-1.0, True))


def test_turns_that_counted_before_their_judge_was_filed_are_settled_again(any_journal: Journal) -> None:
    add_judged(any_journal)
    assert outcome(any_journal) == (-1.0, True)
    file(any_journal)
    with any_journal.write() as session:
        judge_checks.settle_silenced(session)
    assert outcome(any_journal) == (None, False)


def test_a_spent_turn_stays_as_it_was_spent(any_journal: Journal) -> None:
    add_judged(any_journal)
    with any_journal.write() as session:
        session.get_one(InteractionRow, "t").spent_step = 1
    file(any_journal)
    conclude(any_journal, Fitness.UNFIT)
    with any_journal.read() as session:
        assert session.get_one(InteractionRow, "t").is_ready


@pytest.mark.parametrize("state", [Fitness.FIT, Fitness.UNFIT])
def test_a_fit_judge_gets_the_turns_that_waited(any_journal: Journal, state: Fitness) -> None:
    file(any_journal)
    with any_journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
        session.query(JudgeJob).update({"state": "held"})
    conclude(any_journal, state)
    with any_journal.read() as session:
        assert session.query(JudgeJob).one().state == ("queued" if state is Fitness.FIT else "held")


def test_all_are_unfit_if_the_latest_check_of_each_says_so(any_journal: Journal) -> None:
    def are_unfit(*models: str) -> bool:
        with any_journal.read() as session:
            return judge_checks.are_unfit(session, models)

    file(any_journal, "base/old")
    assert not are_unfit("base")
    conclude(any_journal, Fitness.FIT, "base/old")
    file(any_journal)
    conclude(any_journal, Fitness.UNFIT)
    assert are_unfit("base") and not are_unfit("base", "other")
    file(any_journal, "other/abc", "other")
    assert not are_unfit("base", "other")
    conclude(any_journal, Fitness.UNFIT, "other/abc")
    assert are_unfit("base", "other")
