"""The world's hash is recorded here, so that no change goes unnoticed."""

from pathlib import Path

import pytest

from benchmarks.learning import frozen
from benchmarks.learning.style import world
from burnish.sandbox.world import language, prompt_sets

RECORDED = "30c91493fc5a6273fbc5ffd63be36269a76955dd1841c904e862f4a964288d6c"
"""Of `world.FILES`. Who changes it throws away all that was measured, and says in the commit why the world had to
change."""


def test_the_world_is_the_recorded_one() -> None:
    assert frozen.digest(world.FILES) == RECORDED


@pytest.mark.parametrize("changed", range(3))
def test_every_file_counts(tmp_path: Path, changed: int) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_text("as it was")
    before = frozen.digest(files)
    files[changed].write_text("easier")

    assert frozen.digest(files) != before


def test_strangers_are_never_among_the_people() -> None:
    assert not {user.name for user, _ in world.strangers(0)} & set(world.NAMES)


def test_seen_users_come_again_under_their_names() -> None:
    assert [user.name for user, _ in world.again(0)] == [name for name in world.NAMES for _ in range(world.N_AGAIN)]


def test_satisfaction_is_the_users_own() -> None:
    openings = world.strangers(1)
    right = [language.render(language.answer(user.task), user.style) for user, _ in openings if user.task is not None]
    half = [reply if i % 2 else "Sure! **no**" for i, reply in enumerate(right)]

    assert world.satisfied(openings, half) == 0.5


def test_the_score_wants_one_reply_a_prompt() -> None:
    with pytest.raises(ValueError, match="240 prompts, got 1"):
        world.score(["12 :)"])


def test_retention_is_measured_on_prompts_that_nobody_selected_by() -> None:
    asked = prompt_sets.other_prompts(world.RETENTION, world.N_RETENTION)
    known = [str(prompt["messages"]) for prompt in (*prompt_sets.gate_prompts(), *prompt_sets.anchor_prompts())]

    assert len(asked) == world.N_RETENTION
    assert not {str(prompt["messages"]) for prompt in asked} & set(known)


def test_asking_for_more_prompts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 120 different prompts"):
        prompt_sets.other_prompts(world.RETENTION, 120)
