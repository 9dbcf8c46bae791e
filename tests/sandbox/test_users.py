"""Simulated users: their messages, and how their sessions end."""

import random

import pytest

from burnish.sandbox.world import language, reactions, style_hints
from burnish.sandbox.world.language import HOUSE_STYLE
from burnish.sandbox.world.users import Reaction, SimulatedUser, listener_request


def _sessions(user: SimulatedUser, n: int, style: dict[str, bool], wrong: bool = False) -> list[Reaction]:
    heard = []
    for _ in range(n):
        said: str | None = user.opening()
        n_turns = 0
        while said is not None:
            task = language.parse_task(said)
            assert task is not None and task == user.task
            assert not language.is_held_out(task.arguments)
            reaction = user.react(language.render("0 0 0 0" if wrong else language.answer(task), style))
            heard.append(reaction)
            said = reaction.message
            n_turns += 1
        assert 1 <= n_turns <= 4
        assert user.task is None
    return heard


def test_a_satisfied_user_thanks_and_rates_up() -> None:
    heard = _sessions(SimulatedUser(0, "ann"), 60, dict(HOUSE_STYLE))
    assert all(reaction.satisfied for reaction in heard)
    said = [reaction.message for reaction in heard if reaction.message]
    thanked = [text for text in said if text.startswith(reactions.THANKS)]
    assert 0.7 < len(thanked) / len(said) < 1.0
    ends = [reaction for reaction in heard if reaction.message is None]
    assert {(reaction.rating, reaction.comment) for reaction in ends} == {("up", None)}


def test_a_dissatisfied_user_mostly_names_what_is_missing() -> None:
    style = {"bold": True, "list": False, "opener": True, "smile": True}
    heard = _sessions(SimulatedUser(0, "ann"), 200, style)
    assert not any(reaction.satisfied for reaction in heard)
    ends = [reaction for reaction in heard if reaction.message is None]
    assert {reaction.rating for reaction in ends} == {"down"}
    named = [style_hints.read(reaction.comment) for reaction in ends if reaction.comment]
    assert set(named) == {("bold", False), ("opener", False)}
    assert 0.7 < len(named) / len(ends) < 0.9


def test_a_wrong_answer_is_called_wrong() -> None:
    heard = _sessions(SimulatedUser(0, "ann"), 20, dict(HOUSE_STYLE), wrong=True)
    assert all((reaction.message or reaction.comment or "").startswith(reactions.WRONG) for reaction in heard)


def test_ratings_and_comments_wait_for_the_end() -> None:
    heard = _sessions(SimulatedUser(0, "ann"), 50, {"bold": True})
    assert all((reaction.rating is None) == (reaction.message is not None) for reaction in heard)
    assert all(reaction.comment is None for reaction in heard if reaction.message is not None)


def test_a_seed_and_a_name_make_the_user() -> None:
    assert _sessions(SimulatedUser(3, "ann"), 5, {}) == _sessions(SimulatedUser(3, "ann"), 5, {})
    assert _sessions(SimulatedUser(3, "ann"), 5, {}) != _sessions(SimulatedUser(3, "bob"), 5, {})


def test_the_house_style_is_the_users_own() -> None:
    heard = _sessions(SimulatedUser(0, "ann", {"bold": True}), 10, {"bold": True, "list": True})
    assert all(reaction.satisfied for reaction in heard)


def test_a_reaction_outside_a_session_is_an_error_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match="opening"):
        SimulatedUser(0, "ann").react("4 7")


def test_the_listener_asks_for_a_long_count() -> None:
    said = listener_request(random.Random(0)).rstrip(".").split()
    assert int(said[4]) - int(said[2]) > 80
