"""Each judge's standing in the journal, on both databases: counts, and how often users gave the same sign."""

from burnish.journal import Journal
from burnish.journal.turns import record_judgement
from burnish.judges.calibration.standings import standings
from burnish.records import FeedbackSource
from burnish.rewards import FEEDBACK, NEXT_STATE
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_turn


def judged(
    journal: Journal, name: str, *scores: int | None, judge_id: str = "base/abc", origin: str = NEXT_STATE
) -> None:
    with journal.write() as session:
        for score in scores:
            record_judgement(session, judgement(name, score, judge_id=judge_id, n_failed=1), origin)


def turns(journal: Journal, *names: str, agent: str = "agent") -> None:
    for name in names:
        add_turn(journal, interaction([user("a")], interaction_id=name, agent=agent))


def test_each_judge_has_its_counts_and_its_agreement(any_journal: Journal) -> None:
    turns(any_journal, "a", "b", "c", "d", "e")
    for name, score, rating in (("a", 1, 1.0), ("b", -1, -0.2), ("c", 1, -1.0), ("d", 0, 0.0), ("e", None, 1.0)):
        judged(any_journal, name, score)
        add_feedback(any_journal, name, rating)
    judged(any_journal, "a", -1, judge_id="other/1")
    with any_journal.read() as session:
        base, other = standings(session)
    assert (base.judge_id, base.n_verdicts, base.n_abstained, base.n_failed_votes) == ("base/abc", 4, 1, 5)
    assert (base.n_rated, base.n_agreed, base.agreement) == (4, 3, 0.75)
    assert (other.judge_id, other.n_rated, other.n_agreed, other.agreement) == ("other/1", 1, 0, 0.0)
    low, high = base.to_json()["agreement_interval"]
    assert 0.25 < low < 0.35 and 0.94 < high < 0.96  # Wilson, 3 of 4


def test_only_the_latest_rating_by_a_user_counts(any_journal: Journal) -> None:
    turns(any_journal, "a", "b", "c", "d")
    for name in ("a", "b", "c"):
        judged(any_journal, name, 1)
    add_feedback(any_journal, "a", -1.0)
    add_feedback(any_journal, "a", 1.0)
    add_feedback(any_journal, "a", None, comment="only words")
    add_feedback(any_journal, "b", 1.0, source=FeedbackSource.HARNESS)
    add_feedback(any_journal, "c", 1.0, is_deleted=True)
    judged(any_journal, "d", 1, origin=FEEDBACK)  # it was read from the rating
    add_feedback(any_journal, "d", 1.0)
    with any_journal.read() as session:
        (base,) = standings(session)
    assert (base.n_verdicts, base.n_rated, base.n_agreed) == (4, 1, 1)


def test_standings_of_one_agent_s_turns(any_journal: Journal) -> None:
    turns(any_journal, "a")
    turns(any_journal, "b", agent="second")
    judged(any_journal, "a", 1)
    judged(any_journal, "b", -1)
    with any_journal.read() as session:
        assert [each.n_verdicts for each in standings(session, "second")] == [1]
        assert standings(session, "third") == []
        assert standings(session)[0].n_verdicts == 2
        assert standings(session)[0].agreement is None
