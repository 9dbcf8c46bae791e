"""Content: how likely the question is, given a reply."""

from burnish.learner.grading import content
from burnish.learner.model.policy import Policy


def test_words_of_the_question_and_other_forms_of_them_are_left_out() -> None:
    question = "Why do brakes squeak?"
    assert content.without_words_of(question, "Brakes squeak, when the BRAKE pads do wear.") == ", when the pads wear."
    assert content.without_words_of("Was?", "Was ist ein Öl-Wechsel, 2026?") == "ist ein Öl-Wechsel, 2026?"
    assert content.without_words_of("", "as it is") == "as it is"


def test_replies_are_compared_by_the_base_whatever_the_adapter(policy: Policy) -> None:
    question, replies = "w3 w4 w5", ["w6 w7", "w8", "", "w3 w4 w5"]
    before = content.fits(replies, question, policy)
    with_words = content.fits(["w6 w7 w3"], question, policy)
    assert len(before) == 4 and max(before) < 0.0
    assert before[0] == with_words[0] and before[2] == before[3]  # the question's words do not count
    assert before[0] != before[1]
    for parameter in policy.parameters().values():
        parameter.data += 0.1
    assert content.fits(replies, question, policy) == before


def test_only_the_end_of_a_long_question_counts(policy: Policy) -> None:
    end = " ".join(f"w{n % 8}" for n in range(400))
    (short,) = content.fits(["w9"], end, policy)
    (long,) = content.fits(["w9"], "w11 " * 50 + end, policy)
    assert short == long


def test_all_replies_fit_a_message_without_text(policy: Policy) -> None:
    assert content.fits(["w6 w7", "w8"], "", policy) == [0.0, 0.0]
