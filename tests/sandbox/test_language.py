"""The sandbox's language: answers, styles, the split of arguments."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.world import language, persona, reactions, style_hints
from burnish.sandbox.world.language import ATTRIBUTES, HOUSE_STYLE, OPENERS, Task

styles = st.fixed_dictionaries({name: st.booleans() for name in ATTRIBUTES})
tasks = st.builds(lambda seed: language.draw_task(random.Random(seed)), st.integers())


@pytest.mark.parametrize(
    ("operation", "answer"),
    [("copy", "4 71 9"), ("reverse", "9 71 4"), ("first", "4"), ("last", "9"), ("swap", "71 4 9")],
)
def test_the_answer_follows_the_operation(operation: str, answer: str) -> None:
    assert language.answer(Task(operation, (4, 71, 9))) == answer


@given(task=tasks, style=styles, opener=st.sampled_from(OPENERS))
def test_a_rendered_reply_is_read_back_exactly(task: Task, style: dict[str, bool], opener: str) -> None:
    reply = language.render(language.answer(task), style, opener)
    parsed = language.parse(reply)
    assert parsed is not None
    assert (parsed.answer, parsed.style) == (language.answer(task), style)
    assert language.style_of(reply) == style
    assert language.satisfies(reply, task, style)


@given(task=tasks, style=styles, asked=styles)
def test_a_reply_satisfies_exactly_its_own_style(task: Task, style: dict[str, bool], asked: dict[str, bool]) -> None:
    reply = language.render(language.answer(task), style)
    assert language.satisfies(reply, task, asked) == (style == asked)
    assert set(language.violations(reply, asked)) == {name for name in ATTRIBUTES if style[name] != asked[name]}


@pytest.mark.parametrize("extra", ["Hm. {}", "{} ok", "{}\n", " {}", "**{}", "- - {}", "{} :) :)", "Sure! - {}", ""])
def test_nothing_but_the_answer_is_allowed(extra: str) -> None:
    assert not language.is_right(Task("copy", (4, 7)), extra.format("4 7"))


@given(task=tasks, seed=st.integers())
def test_every_phrasing_is_understood(task: Task, seed: int) -> None:
    rng = random.Random(seed)
    said = reactions.then("No bold please.", language.ask(task, rng), rng)
    assert language.parse_task(said) == task


def test_small_talk_asks_for_no_task() -> None:
    assert [text for text in reactions.SMALL_TALK if language.parse_task(text)] == []


@given(seed=st.integers(), held_out=st.booleans())
def test_arguments_come_from_the_requested_side(seed: int, held_out: bool) -> None:
    task = language.draw_task(random.Random(seed), held_out=held_out)
    assert language.is_held_out(task.arguments) == held_out


def test_the_split_is_the_same_on_every_machine() -> None:
    held_out = [pair for pair in ((a, b) for a in range(100) for b in range(100)) if language.is_held_out(pair)]
    assert held_out[:5] == [(0, 3), (0, 5), (0, 6), (0, 16), (0, 17)]
    assert 0.15 < len(held_out) / 10_000 < 0.25


def test_the_count_names_every_number_once() -> None:
    assert language.count_answer(3, 7) == "3 4 5 6 7"
    assert language.count_request(3, 7) == "Count from 3 to 7."


def test_hints_and_wordings_name_one_wish_each() -> None:
    for wish in style_hints.WISHES:
        assert style_hints.read(style_hints.CANONICAL[wish]) == wish
        for wording in style_hints.WORDINGS[wish]:
            assert style_hints.read(style_hints.sentence(wording)) == wish
    said = [wording for wordings in style_hints.WORDINGS.values() for wording in wordings]
    assert len(said) == len(set(said))
    assert style_hints.read("Copy 4 7.") is None


def test_reactions_name_no_attribute_and_stand_in_one_group() -> None:
    groups = [reactions.THANKS, reactions.WRONG, reactions.UNHAPPY, reactions.NEUTRAL]
    said = [text for group in groups for text in group]
    assert len(said) == len(set(said))
    assert [text for text in said if style_hints.read(text)] == []


def test_the_persona_leaves_something_to_find_and_much_to_learn() -> None:
    assert 0.04 < persona.probability(HOUSE_STYLE) < 0.15
    for name in ATTRIBUTES:
        assert 0.15 < persona.probability({name: True}) < 0.85


def test_a_drawn_style_keeps_the_wishes() -> None:
    rng = random.Random(0)
    assert all(persona.draw_style(rng, {"bold": True})["bold"] for _ in range(50))
    share = sum(persona.draw_style(rng) == HOUSE_STYLE for _ in range(4000)) / 4000
    assert abs(share - persona.probability(HOUSE_STYLE)) < 0.02
