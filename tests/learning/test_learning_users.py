"""Notes, misled users, and the count of sessions until three in a row satisfied."""

import pytest

from benchmarks.learning.style import world
from benchmarks.learning.style.misled import MisledUser
from benchmarks.learning.style.notes import Notes
from benchmarks.learning.style.talk import Talker
from burnish.sandbox.world import language, style_hints
from burnish.sandbox.world.users import SimulatedUser


def test_a_note_keeps_what_was_asked_for() -> None:
    notes = Notes()
    notes.hear("ana", "No bold please. Now reverse 3 9.")
    notes.hear("ana", "where is the smile?")
    notes.hear("bo", "Thanks! Copy 4 5.")

    assert notes.before("ana") == [{"role": "system", "content": "Do not use bold. Use a smile."}]
    assert notes.before("bo") == []


def test_the_latest_word_counts() -> None:
    notes = Notes()
    notes.hear("ana", "Use bold please.")
    notes.hear("ana", "I told you no bold.")

    assert notes.before("ana")[0]["content"] == "Do not use bold."


def test_every_wording_is_understood() -> None:
    for wish, wordings in style_hints.WORDINGS.items():
        for wording in wordings:
            notes = Notes()
            notes.hear("ana", f"{style_hints.sentence(wording)} Next, swap 1 2.")
            assert notes.before("ana") == [{"role": "system", "content": style_hints.CANONICAL[wish]}], wording


def said_by(kind: type[SimulatedUser]) -> set[style_hints.Wish]:
    """The wishes that users of a kind utter over many wrong-styled replies."""
    found = set()
    for user in world.people(0, kind):
        for _ in range(60):
            user.opening()
            while user.task is not None:
                reaction = user.react(
                    language.render(language.answer(user.task), {"bold": True, "list": True, "opener": True})
                )
                for sentence in (reaction.message or reaction.comment or "").split(". "):
                    wish = style_hints.read(sentence)
                    if wish is not None:
                        found.add(wish)
    return found


def test_users_ask_for_their_style_and_misled_ones_for_anything() -> None:
    assert said_by(SimulatedUser) <= set(language.HOUSE_STYLE.items())
    assert said_by(MisledUser) == set(style_hints.WISHES)


def test_a_misled_user_is_pleased_by_what_pleases_any_other() -> None:
    user = MisledUser(0, "ana")
    user.opening()
    assert user.task is not None

    assert user.react(language.render(language.answer(user.task), language.HOUSE_STYLE)).satisfied


@pytest.mark.parametrize(
    ("first_turns", "expected"),
    [("", None), ("11", None), ("111", 3), ("0111", 4), ("1101011", None), ("110111", 6)],
)
def test_sessions_until_three_in_a_row(first_turns: str, expected: int | None) -> None:
    talker = Talker(SimulatedUser(0, "ana"), first_turns=[turn == "1" for turn in first_turns])

    assert talker.n_until_satisfied == expected
