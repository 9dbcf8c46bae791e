"""The real model's worlds: recorded hashes, wishes that programs can check, notes that hear them, general abilities."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.learning import frozen
from benchmarks.real_model import model
from benchmarks.real_model.continual import part as continual
from benchmarks.real_model.continual.run import graded
from benchmarks.real_model.continual.wishes import OWN_VIEW, POPULATIONS, SPOKEN_TO, people
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import ARMS, PRODUCT
from benchmarks.real_model.english.notes import EnglishNotes
from benchmarks.real_model.exams import OF_BASE, Exams
from burnish import config
from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS
from burnish.config import ABILITIES, ANCHORS, BASE_NAME
from burnish.errors import BurnishError
from burnish.sandbox.demo.worlds import UNSEEN
from burnish.sandbox.english import questions
from burnish.sandbox.english.style import HOUSE_STYLE, NO_COMMAS, SHORT, Wish
from burnish.sandbox.english.users import WRITES_IT, EnglishUser
from burnish.server.rollout.forgetting_prompts import read_prompts

RECORDED = {
    "english": "afc05fdf0a6e89bc3704936c88c23d354ed837f8f5b18230ee32cc7f771f16d7",
    "continual": "07d4e47a0d692cd4699140f700857b8db18f5c02d5ba644f51fa66dcaf3e0a3a",
}
"""Who changes a world throws away all that was measured in it."""


def test_the_worlds_are_the_recorded_ones() -> None:
    assert {"english": frozen.digest(world.FILES), "continual": frozen.digest(continual.FILES)} == RECORDED


@pytest.mark.parametrize(
    ("wish", "kept", "missed"),
    [
        (OWN_VIEW, ["I keep it in a bag.", "Well, I'd wash it."], ["It is in a bag.", "i think so", "Ice and IO.", ""]),
        (SPOKEN_TO, ["You can wash it.", "Wash your hands."], ["Youth is short.", "I wash it.", ""]),
    ],
    ids=lambda value: value.name if isinstance(value, Wish) else "",
)
def test_a_wish_of_a_later_population_is_checked_both_ways(wish: Wish, kept: list[str], missed: list[str]) -> None:
    assert all(map(wish.is_kept, kept))
    assert not any(map(wish.is_kept, missed))


def test_one_reply_can_keep_all_wishes() -> None:
    reply = "I think you can keep it in a bag."

    assert all(wish.is_kept(reply) for wishes in POPULATIONS for wish in wishes)


def test_users_of_a_population_want_its_wishes_alone() -> None:
    first, second = people(0, 0), people(0, 1)

    assert {user.wishes for user in first} == {HOUSE_STYLE}
    assert {user.wishes for user in second} == {(OWN_VIEW,)}
    assert not {user.name for user in first} & {user.name for user in second}
    said = {_comment(user) for user in second for _ in range(20)}
    assert said <= {None, *OWN_VIEW.sayings} and len(said) == 5


def test_the_first_population_is_that_of_the_english_world() -> None:
    told = [
        [[user.opening(), user.react("No.")] for _ in range(20)]
        for users in (people(3, 0), world.people(3))
        for user in users
    ]
    assert told[: len(told) // 2] == told[len(told) // 2 :]


@pytest.mark.parametrize("place", range(len(POPULATIONS)))
def test_users_of_each_population_write_right_replies_as_often(place: int) -> None:
    """A written reply keeps their wishes, and is about the question."""
    users = people(1, place)
    reactions = [(user.opening(), user.react("No."))[1] for user in users for _ in range(100)]
    written = [reaction.demonstration for reaction in reactions if reaction.demonstration is not None]
    assert len(written) / len(reactions) == pytest.approx(WRITES_IT, abs=0.04)
    assert all(wish.is_kept(reply) for reply in written for wish in POPULATIONS[place])
    assert len({reply.split(" ", 1)[0] for reply in written}) >= 2


def _comment(user: EnglishUser) -> str | None:
    user.opening()
    comment = user.react("Bags boxes water soil heat, and so on.").comment
    while user._question is not None:
        user.react("Nothing.")
    return comment


def test_replies_are_graded_by_everybodys_wishes() -> None:
    replies = ["I said a bag, not a box."] + [""] * (len(questions.heldout()) - 1)
    share = 1 / len(replies)

    found = graded(replies)

    assert (found["own_view"], found["spoken_to"], found["score_2"]) == (pytest.approx(share), 0.0, 0.0)
    assert found["no_commas"] == pytest.approx(1 - share)


def test_notes_state_what_a_user_has_voiced_once_and_in_that_order() -> None:
    notes = EnglishNotes()
    notes.hear("ana", None)
    assert notes.before("ana") == []

    notes.hear("ana", f"{NO_COMMAS.sayings[1]} {SHORT.sayings[0]}")
    notes.hear("ana", NO_COMMAS.sayings[0])
    notes.hear("bo", SHORT.sayings[3])

    # two wishes of one comment come in the house style's order
    assert notes.before("ana")[0]["content"] == f"{SHORT.instruction} {NO_COMMAS.instruction}"
    assert notes.before("bo") == [{"role": "system", "content": SHORT.instruction}]


def test_the_unseen_prompts_are_no_gates_and_no_anchors() -> None:
    known = {str(prompt.messages) for prompt in read_prompts(ABILITIES, None)}
    text = ANCHORS.read_text(encoding="utf-8")
    unseen = read_prompts(UNSEEN, None)

    assert len(unseen) >= 200
    assert not {str(prompt.messages) for prompt in unseen} & known
    assert not [prompt for prompt in unseen if str(prompt.messages[-1]["content"]) in text]


async def test_abilities_are_shares_of_what_the_base_passes_and_the_base_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = {BASE_NAME: [True, True, True, True, False], "agent": [True, True, True, False, True]}
    drawn = [True, False, True, True, True]
    asked: list[tuple[str, float]] = []
    running: Any = SimpleNamespace(agent="agent", settings=SimpleNamespace(state_dir=tmp_path))
    exams = Exams(running)

    async def answer(model: str, temperature: float = 0.0) -> list[bool]:
        asked.append((model, temperature))
        return drawn if temperature else passed[model]

    monkeypatch.setattr(exams, "_passed", answer)

    # of the base's four the agent keeps three, of three that it passes in each draw two, and it passes another one
    expected = {"kept": 0.75, "kept_sure": pytest.approx(2 / 3), "general": 1.0}
    assert await exams.abilities() == expected
    assert await exams.abilities() == expected
    of_base = [(BASE_NAME, 0.0), *(N_BASE_ANSWERS - 1) * [(BASE_NAME, 0.5)]]
    assert asked == [*of_base, ("agent", 0.0), ("agent", 0.0)]

    none = json.dumps({"passed": N_BASE_ANSWERS * [5 * [False]]})
    (tmp_path / "cache" / OF_BASE).write_text(none)
    with pytest.raises(BurnishError, match="got one that passes none"):
        await exams.abilities()


def test_the_product_runs_with_its_defaults() -> None:
    """`UNDER` must be what is in force, or a run with other defaults would pass for the same."""
    settings = config.load(flags={**ARMS[PRODUCT].flags(0), "engine.model": "some/model"})

    assert settings.preset == "general"
    assert settings.recipe.model_dump(mode="json") == {**model.UNDER["learner"], "max_wait": 3600.0}
    assert settings.gate.model_dump(mode="json") == model.UNDER["gate"]
