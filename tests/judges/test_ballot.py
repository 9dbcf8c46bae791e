"""Counting votes: a tie is no zero, an unread vote is no vote, a hint needs most of the votes behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.ballot import MAX_HINT, MIN_HINT, VoidBallot, count

GOOD, BAD, NEUTRAL, ABSTAIN, GARBAGE = "VERDICT: +1", "VERDICT: -1", "VERDICT: 0", "VERDICT: abstain", "it was nice"


def minus(hint: str) -> str:
    return f"VERDICT: -1\nHINT: {hint}"


@pytest.mark.parametrize(
    ("answers", "score", "confidence"),
    [
        ([GOOD, GOOD, GOOD], 1, 1.0),
        ([GOOD, GOOD, BAD], 1, 2 / 3),
        ([BAD, ABSTAIN, BAD], -1, 2 / 3),
        ([NEUTRAL, NEUTRAL, GOOD], 0, 2 / 3),
        ([GOOD, BAD], None, 1 / 2),  # a tie
        ([GOOD, BAD, NEUTRAL], None, 1 / 3),
        ([GOOD, ABSTAIN], None, 1 / 2),
        ([ABSTAIN, ABSTAIN, GOOD], None, 2 / 3),
        ([GOOD, BAD, GARBAGE], None, 1 / 2),
        ([GOOD, GOOD, GARBAGE], 1, 1.0),
        ([BAD], -1, 1.0),
    ],
)
def test_the_majority_of_readable_votes_decides(answers: list[str], score: int | None, confidence: float) -> None:
    result = count(answers, len(answers))
    assert (result.score, result.confidence) == (score, pytest.approx(confidence))
    assert result.n_failed == answers.count(GARBAGE)
    assert len(result.votes) == len(answers) - result.n_failed


@pytest.mark.parametrize(
    ("answers", "n_asked", "said"),
    [
        ([GARBAGE, GARBAGE, GOOD], 3, "1 of 3 votes could be read; .*it was nice"),
        ([GARBAGE], 1, "0 of 1"),
        ([], 3, "0 of 3 votes could be read; no answer came back"),
        ([GOOD], 3, "1 of 3 votes could be read; no answer came back"),
    ],
)
def test_a_ballot_with_fewer_than_half_readable_votes_is_void(answers: list[str], n_asked: int, said: str) -> None:
    with pytest.raises(VoidBallot, match=said):
        count(answers, n_asked)


def test_votes_that_never_came_count_as_failed() -> None:
    result = count([GOOD, GOOD], 3)
    assert (result.score, result.n_failed, result.votes) == (1, 1, (1, 1))


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        (
            [minus("Write without bold."), minus("Write without bold."), minus("Leave out the bold marks.")],
            "Write without bold.",
        ),
        ([minus("Leave out bold marks."), minus("No bold text please.")], "No bold text please."),  # the shortest of equals
        ([minus("Write without bold."), BAD, BAD], None),  # one of three carries one
        ([minus("Write without bold."), minus("Write without bold."), BAD], "Write without bold."),
        ([minus("Write without bold."), BAD], None),  # half is not most
        ([minus("short"), minus("short"), minus("short")], None),
        ([minus("x" * (MAX_HINT + 1))] * 3, None),
        ([minus("x" * MIN_HINT)] * 3, "x" * MIN_HINT),
        ([minus("x" * MAX_HINT)] * 3, "x" * MAX_HINT),
        (["VERDICT: +1\nHINT: Write without bold."] * 2 + [BAD], "Write without bold."),
        ([minus("Write without bold."), GOOD, GOOD], None),
        (["VERDICT: +1\nHINT: Always be so kind.", minus("Write without bold."), BAD], None),  # a hint against the verdict
    ],
)
def test_a_hint_is_accepted_when_most_votes_carry_one_that_fits(answers: list[str], hint: str | None) -> None:
    assert count(answers, len(answers)).hint == hint


@given(st.permutations([GOOD, GOOD, BAD, ABSTAIN, GARBAGE, minus("Write without bold."), minus("Use no bold text.")]))
def test_the_order_of_votes_does_not_matter(answers: list[str]) -> None:
    result, expected = count(answers, 7), count(sorted(answers), 7)
    assert (result.score, result.confidence, result.hint, result.n_failed) == (
        expected.score,
        expected.confidence,
        expected.hint,
        expected.n_failed,
    )
