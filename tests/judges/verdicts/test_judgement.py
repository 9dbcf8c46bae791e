"""What is stored of a ballot: the first usable hint and the other usable ones, or the most common one with its
status."""

from burnish.judges.verdicts.ballot import Result
from burnish.judges.verdicts.case import Case, ask
from burnish.judges.verdicts.judgement import judgement
from burnish.judges.verdicts.verdict import question
from tests.factories import user

SHORT, LIST, LINK = "Be brief.", "Use a numbered list.", "Read https://example.org/style first."


def asked() -> Case:
    came_back = "no , use a numbered list and bold text , and be brief"
    return ask(question([user("what is 2 + 2 ?")], "4", [user(came_back)], "user"))


def stored(*hints: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    result = Result(-1, 1.0, hints[0], (-1, -1, -1), 0, n_bearing=3, others=hints[1:])
    made = judgement("t", "j", result, asked())
    return made.hint, made.hint_status, tuple(made.candidates)


def test_the_first_hint_that_may_be_used_is_the_hint() -> None:
    assert stored(LIST, "Use bold text please.") == (LIST, "accepted", ("Use bold text please.",))
    assert stored(SHORT, LINK, LIST) == (LIST, "accepted", ())


def test_if_none_is_usable_the_most_common_hint_stays_with_its_status() -> None:
    assert stored(LINK, SHORT) == (LINK, "not_general", ())
    assert stored(SHORT) == (SHORT, "length", ())


def test_no_hint_has_no_status() -> None:
    made = judgement("t", "j", Result(-1, 1.0, None, (-1, -1, -1), 0), asked())
    assert (made.hint, made.hint_status, made.candidates) == (None, None, ())
