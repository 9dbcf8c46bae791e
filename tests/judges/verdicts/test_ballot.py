"""Counting votes: a tie is no zero, an unparsed vote is no vote, a hint needs most of the votes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.judges.verdicts.ballot import VoidBallot, count

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


def test_other_hints_of_the_verdict_stay_for_the_teacher_to_choose_from() -> None:
    told = [minus(hint) for hint in ("Be brief.", "Use bold.", "Be brief.", "Use a list now.", "Say less.")]
    result = count([*told, GOOD, "VERDICT: +1\nHINT: Be long."], 7)
    assert (result.hint, result.others, result.n_bearing) == ("Be brief.", ("Say less.", "Use bold."), 5)


@pytest.mark.parametrize(
    ("answers", "hint", "n_bearing"),
    [
        (
            [minus("Write without bold."), minus("Write without bold."), minus("Leave out the bold marks.")],
            "Write without bold.",
            3,
        ),
        (
            [minus("Leave out bold marks."), minus("No bold text please.")],
            "No bold text please.",
            2,
        ),  # the shortest of equals
        ([minus("Write without bold."), BAD, BAD], "Write without bold.", 1),
        (["VERDICT: +1\nHINT: Write without bold."] * 2 + [BAD], "Write without bold.", 2),
        ([minus("Write without bold."), GOOD, GOOD], None, 0),  # a hint against the verdict
        ([BAD, BAD, GOOD], None, 0),
    ],
)
def test_the_hint_is_that_of_most_votes_and_who_carries_one_is_counted(
    answers: list[str], hint: str | None, n_bearing: int
) -> None:
    result = count(answers, len(answers))
    assert (result.hint, result.n_bearing) == (hint, n_bearing)


@given(st.permutations([GOOD, GOOD, BAD, ABSTAIN, GARBAGE, minus("Write without bold."), minus("Use no bold text.")]))
def test_the_order_of_votes_does_not_matter(answers: list[str]) -> None:
    result, expected = count(answers, 7), count(sorted(answers), 7)
    assert (result.score, result.confidence, result.hint, result.n_failed) == (
        expected.score,
        expected.confidence,
        expected.hint,
        expected.n_failed,
    )
