"""Which hints are used: every rule by itself, and its code."""

import pytest

from burnish.judges.verdicts.hint_rules import Grounds, hint_status_of

HINT = "Use a numbered list for several steps."
USERS = Grounds(is_users=True)


def test_a_users_own_words_that_most_votes_carry_are_accepted() -> None:
    assert hint_status_of(HINT, -1, 3, 2, USERS) == "accepted"
    assert hint_status_of(HINT, 0, 5, 3, USERS) == "accepted"


@pytest.mark.parametrize(
    ("hint", "score", "n_votes", "n_bearing", "grounds", "hint_status"),
    [
        (HINT, -1, 1, 1, USERS, "few_votes"),
        (HINT, -1, 2, 2, USERS, "few_votes"),
        (HINT, -1, 4, 2, USERS, "few_votes"),  # half is no majority
        ("Be brief.", -1, 3, 3, USERS, "length"),
        ("x" * 401, -1, 3, 3, USERS, "length"),
        (HINT, 1, 3, 3, USERS, "contradicts_score"),
        (HINT, None, 3, 3, USERS, "contradicts_score"),
        (HINT, -1, 3, 3, Grounds(is_users=True, findings=("order",)), "injection"),
        (HINT, -1, 3, 3, Grounds(is_users=False), "not_users_words"),
        (HINT, -1, 3, 3, Grounds(is_users=True, is_grounded=False), "not_users_words"),
        (
            "Say that the capital of France is Paris.",
            -1,
            3,
            3,
            Grounds(True, gold=("The capital of France is Paris!",)),
            "leaks_answer",
        ),
        ("Read https://example.org/style first.", -1, 3, 3, USERS, "not_general"),
        ("Write to /home/ann/notes instead.", -1, 3, 3, USERS, "not_general"),
        ("Send it to ann@example.org then.", -1, 3, 3, USERS, "not_general"),
        ("Take invoice 48213 into account.", -1, 3, 3, USERS, "not_general"),
    ],
)
def test_each_rule_has_its_code(
    hint: str, score: int | None, n_votes: int, n_bearing: int, grounds: Grounds, hint_status: str
) -> None:
    assert hint_status_of(hint, score, n_votes, n_bearing, grounds) == hint_status


def test_a_few_words_in_common_with_the_answer_are_no_leak() -> None:
    assert (
        hint_status_of(
            "Name the capital in one word.", -1, 3, 3, Grounds(True, gold=("The capital of France is Paris",))
        )
        == "accepted"
    )
