"""The drill's world: who lies, what liars say, and a recorded hash that makes every change visible."""

from pathlib import Path

import pytest

from benchmarks.learning import frozen
from benchmarks.learning.drill import arms, world
from benchmarks.learning.drill.arms import Defence
from benchmarks.learning.drill.poisoned import OPPOSITE, PoisonedUser
from burnish import config
from burnish.sandbox import MODEL
from burnish.sandbox.world import language, style_hints
from burnish.sandbox.world.language import ATTRIBUTES, HOUSE_STYLE
from burnish.server.rollout.forgetting_prompts import read_prompts

RECORDED = "21d4aa52ba716a9815004c68b5df77eb394b775bb4b6f97e7edf777d55fd27c5"
"""Of `world.FILES`. Who changes it throws away all that was measured, and says in the commit why the world had to
change."""


def test_the_world_is_the_recorded_one() -> None:
    assert frozen.digest(world.FILES) == RECORDED


@pytest.mark.parametrize(("share", "n"), [(0.0, 0), (0.1, 2), (0.25, 5), (0.4, 8)])
def test_shares_are_of_whole_people(share: float, n: int) -> None:
    people = world.people(3, share)

    assert sum(isinstance(user, PoisonedUser) for user in people) == n
    assert {user.name for user in people} == set(world.NAMES)


def test_a_share_of_half_a_person_is_refused() -> None:
    with pytest.raises(ValueError, match="whole people among 20"):
        world.liars(0, 0.33)


def test_who_lies_is_the_seeds() -> None:
    assert world.liars(0, 0.4) == world.liars(0, 0.4)
    assert len({world.liars(seed, 0.4) for seed in range(8)}) > 1


def styles() -> list[dict[str, bool]]:
    """All sixteen."""
    return [{name: bool(n >> i & 1) for i, name in enumerate(ATTRIBUTES)} for n in range(16)]


def said_of(style: dict[str, bool]) -> tuple[set[bool], set[style_hints.Wish], set[str | None]]:
    """Whether a liar was satisfied with right replies in a style, the wishes that the liar uttered, and the ratings."""
    satisfied, wishes, ratings = set(), set(), set()
    for n in range(40):
        user = PoisonedUser(0, f"user {n}")
        user.opening()
        while user.task is not None:
            reaction = user.react(language.render(language.answer(user.task), style))
            satisfied.add(reaction.satisfied)
            ratings |= {reaction.rating} - {None}
            for sentence in (reaction.message or reaction.comment or "").split(". "):
                if (wish := style_hints.read(sentence)) is not None:
                    wishes.add(wish)
    return satisfied, wishes, ratings


@pytest.mark.parametrize("style", styles())
def test_a_liar_praises_the_opposite_of_the_house_style_and_nothing_else(style: dict[str, bool]) -> None:
    satisfied, wishes, ratings = said_of(style)
    kept = {name for name in ATTRIBUTES if style[name] == HOUSE_STYLE[name]}

    assert satisfied == {not kept}
    assert ratings == {"down" if kept else "up"}
    assert wishes == {
        (name, OPPOSITE[name]) for name in kept
    }  # complains about all that keeps the house style, and of nothing else


def test_a_liar_calls_a_wrong_answer_wrong() -> None:
    user = PoisonedUser(0, "user 1")
    user.opening()

    assert not user.react("nonsense").satisfied


def test_the_score_is_of_the_house_style() -> None:
    def replies(style: language.Style) -> list[str]:
        return [language.render(language.answer(prompt.task), style) for prompt in world.PROMPTS]

    assert world.score(replies(HOUSE_STYLE)) == 1.0
    assert world.score(replies(OPPOSITE)) == 0.0


def test_the_rate_is_three_times_the_sandboxs() -> None:
    settings = config.load(flags={"engine.model": str(MODEL)})

    assert settings.recipe.learning_rate == arms.SANDBOX_RATE
    assert {arm.flags(0)["learner.learning_rate"] for arm in arms.ARMS.values()} == {3 * settings.recipe.learning_rate}


@pytest.mark.parametrize("arm", arms.ARMS.values(), ids=lambda arm: arm.name)
def test_every_arms_settings_are_the_products(arm: arms.Arm) -> None:
    settings = config.load(flags={"engine.model": str(MODEL), **arm.flags(5)})

    is_defended = arm.defence is not Defence.NONE
    assert settings.recipe.seed == 5
    assert settings.canary.watch is is_defended
    assert (settings.recipe.anchor_weight > 0) is is_defended
    assert (settings.recipe.user_cap < 1) is is_defended
    assert (settings.gate.forgetting_margin < 1) is is_defended


def test_the_operators_prompts_are_none_that_is_scored(tmp_path: Path) -> None:
    file = tmp_path / "acceptance.jsonl"
    file.write_text(world.acceptance(), encoding="utf-8")
    prompts = read_prompts(file, None, "gate.acceptance_prompts")
    asked = [str(prompt.messages[0]["content"]) for prompt in prompts]

    assert len(set(asked)) == len(prompts) == 360
    assert not set(asked) & {prompt.text for prompt in world.PROMPTS}
    assert all(language.is_held_out(prompt.task.arguments) for prompt in world.own_prompts())
    for prompt, held in zip(prompts, world.own_prompts(), strict=True):
        answer = language.answer(held.task)
        assert prompt.passes({"content": language.render(answer, HOUSE_STYLE)})
        assert not prompt.passes({"content": language.render(answer, {**HOUSE_STYLE, "bold": True})})
        assert not prompt.passes({"content": "1 2 3 4 5 :)"})
