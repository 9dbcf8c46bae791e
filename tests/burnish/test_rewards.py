"""The effective reward: who outranks whom, what is absent, whose words may become a hint."""

from collections.abc import Sequence

import pytest

from burnish.records import Feedback, FeedbackSource, Judgement
from burnish.rewards import FEEDBACK, NEXT_STATE, Verdict, compose
from tests.factories import feedback, judgement

HINT = "Write without bold text."


def verdict(
    score: int | None, hint: str | None = None, *, origin: str = NEXT_STATE, from_user: bool = True, at: float = 3000.0
) -> Verdict:
    word: Judgement = judgement("t", score, hint, created_at=at)
    return Verdict(f"j-{origin}-{at:.0f}", origin, word, from_user)


def user_says(rating: float | None, at: float = 2000.0, **changes: object) -> Feedback:
    return feedback("t", rating, feedback_id=f"user-{at:.0f}", created_at=at, **changes)


def harness_says(rating: float | None, at: float = 2000.0) -> Feedback:
    return feedback("t", rating, feedback_id=f"harness-{at:.0f}", source=FeedbackSource.HARNESS, created_at=at)


@pytest.mark.parametrize(
    ("said", "verdicts", "value", "source"),
    [
        ([user_says(-1.0), harness_says(1.0)], [verdict(1)], -1.0, "user"),
        ([user_says(0.0)], [verdict(1)], 0.0, "user"),  # a neutral word is a word
        ([user_says(0.25)], [], 0.25, "user"),
        ([harness_says(1.0)], [verdict(-1)], -1.0, "judge"),
        ([harness_says(1.0)], [verdict(0)], 0.0, "judge"),
        ([harness_says(1.0)], [verdict(None)], 1.0, "harness"),  # an abstention is no verdict
        ([harness_says(0.5)], [], 0.5, "harness"),
        ([user_says(None, comment="no bold")], [verdict(1)], 1.0, "judge"),  # words without a rating
    ],
)
def test_the_highest_level_that_spoke_counts_alone(
    said: Sequence[Feedback], verdicts: Sequence[Verdict], value: float, source: str
) -> None:
    reward = compose(said, verdicts)
    assert reward is not None
    assert (reward.value, reward.source) == (value, source)


@pytest.mark.parametrize(
    ("said", "verdicts"),
    [([], []), ([], [verdict(None)]), ([user_says(None, comment="hm")], []), ([], [verdict(-1, HINT, origin=FEEDBACK)])],
)
def test_nothing_said_is_none_not_zero(said: Sequence[Feedback], verdicts: Sequence[Verdict]) -> None:
    assert compose(said, verdicts) is None


def test_the_latest_word_counts_whatever_the_order_of_the_records() -> None:
    for said in ([user_says(1.0, 10.0), user_says(-1.0, 20.0)], [user_says(-1.0, 20.0), user_says(1.0, 10.0)]):
        reward = compose(said, [])
        assert reward is not None
        assert (reward.value, list(reward.record_ids)) == (-1.0, ["user-20"])
    again = compose([], [verdict(1, at=20.0), verdict(-1, at=10.0)])
    assert again is not None and again.value == 1.0


def test_only_a_users_words_become_a_hint() -> None:
    from_tool = compose([user_says(-1.0)], [verdict(-1, HINT, from_user=False)])
    from_user = compose([user_says(-1.0)], [verdict(-1, HINT)])
    assert from_tool is not None and from_user is not None
    assert (from_tool.hint, list(from_tool.record_ids)) == (None, ["user-2000"])
    assert (from_user.hint, list(from_user.record_ids)) == (HINT, ["user-2000", "j-next_state-3000"])


def test_a_hint_from_feedback_stands_before_one_from_the_next_state() -> None:
    late = verdict(-1, "From the reply after it.", at=9000.0)
    explicit = verdict(-1, "From explicit feedback.", origin=FEEDBACK, at=10.0)
    reward = compose([], [explicit, late])
    assert reward is not None
    assert reward.hint == "From explicit feedback."
    assert list(reward.record_ids) == ["j-next_state-9000", "j-feedback-10"]


def test_the_record_behind_reward_and_hint_is_named_once() -> None:
    reward = compose([], [verdict(-1, HINT)])
    assert reward is not None
    assert list(reward.record_ids) == ["j-next_state-3000"]
