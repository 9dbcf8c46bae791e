"""How often people agree with a judge and with one another, and the queue for a second opinion."""

import pytest

from burnish.journal import Journal
from burnish.journal.listing import judge_figures, label_queue
from burnish.journal.listing.label_queue import Why
from burnish.journal.turns import record_judgement
from burnish.records import FeedbackSource, TargetKind
from burnish.rewards import FEEDBACK, NEXT_STATE
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_turn


def turn(
    journal: Journal, name: str, *ratings: tuple[str, float], score: int | None = None, agent: str = "agent"
) -> None:
    """A reply that the keys have rated in this order, and the verdict of a judge."""
    add_turn(journal, interaction([user("hi")], interaction_id=name, agent=agent, ended_at=float(len(name))))
    for key, rating in ratings:
        add_feedback(journal, name, rating, key_id=key)
    if score is not None:
        with journal.write() as session:
            record_judgement(session, judgement(name, score), NEXT_STATE)


@pytest.fixture
def rated(any_journal: Journal) -> Journal:
    turn(any_journal, "agreed", ("ann", 1.0), ("bob", 0.5), score=1)
    turn(any_journal, "split", ("ann", 1.0), ("bob", -1.0), score=1)
    turn(any_journal, "changed", ("ann", -1.0), ("ann", 1.0), score=1)
    turn(any_journal, "alone", ("ann", -1.0), score=-1)
    turn(any_journal, "unrated", score=1)
    turn(any_journal, "elsewhere", ("ann", 1.0), ("bob", 1.0), score=-1, agent="other")
    return any_journal


def test_the_sign_of_the_latest_rating_is_compared_with_the_score(rated: Journal) -> None:
    with rated.read() as session:
        found = judge_figures.agreement(session, "agent", "default")
    (judge,), people = found["judges"], found["people"]
    # on `split`, bob's rating is the latest
    assert (judge["judge_id"], judge["n"], judge["share"]) == ("base/abc", 4, 0.75)
    assert (people["n"], people["share"]) == (2, 0.5)  # `agreed` and `split`
    assert judge["low"] < 0.75 < judge["high"]


def test_only_a_users_rating_of_one_reply_counts(any_journal: Journal) -> None:
    turn(any_journal, "t", score=1)
    for number, changes in enumerate(
        (
            {"source": FeedbackSource.HARNESS},
            {"about": TargetKind.SESSION},
            {"tenant": "elsewhere"},
            {"attached": False},
            {"is_deleted": True},
        )
    ):
        add_feedback(any_journal, "t", 1.0, key_id=f"k-{number}", **changes)
    with any_journal.write() as session:
        record_judgement(session, judgement("t", -1, judge_id="words/1"), FEEDBACK)
    with any_journal.read() as session:
        found = judge_figures.agreement(session, "agent", "default")
    assert found == {"judges": [], "people": {"n": 0, "share": None, "low": None, "high": None}}


@pytest.mark.parametrize(
    ("voice", "wanted"),
    [(("cat", None), {"alone", "changed"}), (("ann", None), set()), (("ann", "ann"), {"alone", "changed"})],
)
def test_a_second_opinion_is_asked_of_somebody_else(
    rated: Journal, voice: tuple[str, str | None], wanted: set[str]
) -> None:
    with rated.read() as session:
        found, following = label_queue.queue(session, "agent", Why.SECOND, before=None, limit=10, voice=voice)
        others, _ = label_queue.queue(session, "agent", Why.SAMPLE, before=None, limit=10, voice=voice)
    assert {each["turn"] for each in found} == wanted and following is None
    assert all("reward" not in each and "training_status" not in each for each in found)
    assert {each["turn"] for each in others} <= {"unrated"}
