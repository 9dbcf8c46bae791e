"""The hint grader: the posterior of the hint under the base. On the sandbox's base it distinguishes replies."""

import math
from array import array
from pathlib import Path
from typing import Any

import pytest
from world import DRAWN, SETTINGS, Make, World, draw, outcome_of

from burnish.config import Recipe
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, RubricJob, ShadowGroupRow
from burnish.learner.data.rows import Text
from burnish.learner.data.shadow_groups import GroupLedger
from burnish.learner.data.teacher_prompts import hinted_prompt, render
from burnish.learner.grading.hint_grader import HintGrader, posteriors
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.run.loop import Loop
from burnish.sandbox import MODEL
from burnish.sandbox.world import heldout, language, style_hints

WISH = "Use bold."


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def grader(world: World) -> HintGrader:
    return HintGrader(world.journal, "agent", world.trainer.policy)


class Fixed:
    """A policy with given log-probs of its replies: first for the plain prompt, then for the hinted one."""

    def __init__(self, *found: list[float]) -> None:
        self._found = list(found)

    def logprobs(self, rows: Any, weights: Weights) -> Any:
        import torch

        assert weights is Weights.BASE
        return [torch.tensor([value, 0.0]) for value in self._found.pop(0)]


def test_golden_posteriors() -> None:
    texts = [Text(array("i", [1]), array("i", [2]))] * 4
    policy: Any = Fixed([-1.0, -3.0, -1.0, -1.0], [-1.0, -1.0, -2.0, -1001.0])
    expected = [0.5, 1 / (1 + math.exp(-2.0)), 1 / (1 + math.exp(1.0)), 0.0]
    assert posteriors(policy, texts, texts) == pytest.approx(expected, abs=1e-7)


def test_members_get_the_posterior_under_the_base_not_the_adapter(world: World) -> None:
    (name,) = world.add(1)
    draw(world, name)
    world.trainer.step([], [Text(array("i", [3, 4]), array("i", [5, 0]))])  # the adapter is no longer the base
    assert grader(world).grade(8) == 1
    state, _, scores = outcome_of(world, name)
    policy = world.trainer.policy
    with world.journal.read() as session:
        turn = session.get_one(InteractionRow, name)
        ids, live = array("i"), array("i")
        ids.frombytes(turn.prompt_rest)
        live.frombytes(turn.token_ids)
    hinted = hinted_prompt(policy.tokenizer, [{"role": "user", "content": "copy 0"}], (), WISH, ids)
    assert hinted is not None
    for score, reply in zip(scores, (live, *DRAWN), strict=True):
        before, after = (
            policy.logprobs([Text(prompt, reply)], Weights.BASE)[0].sum().item() for prompt in (ids, hinted)
        )
        assert score == pytest.approx(1 / (1 + math.exp(before - after)), abs=1e-4)
    assert state in {"scored", "dropped"} and (state == "dropped") == (max(scores) - min(scores) < 0.05)  # type: ignore[type-var, operator]
    with world.journal.read() as session:
        assert session.get_one(ShadowGroupRow, name).judge_id.startswith("wish/")  # type: ignore[union-attr]
        assert session.query(RubricJob).count() == 0
    assert grader(world).grade(8) == 0


def test_several_hints_count_equally(world: World) -> None:
    """The score of a group on two hints is the mean of its scores on each. A hint that cannot be inserted is left
    out."""
    names = world.add(3)
    for name, wish in zip(names, ("Use bold.", "Be brief.", "Use bold.\nBe brief."), strict=True):
        draw(world, name, wish=wish)
    with world.journal.write() as session:  # one prompt for all three
        first = session.get_one(InteractionRow, names[0])
        for name in names[1:]:
            row = session.get_one(InteractionRow, name)
            row.prompt_rest, row.message_digests, row.token_ids = (
                first.prompt_rest,
                first.message_digests,
                first.token_ids,
            )
    assert grader(world).grade(8) == 3
    bold, brief, both = (outcome_of(world, name)[2] for name in names)
    assert bold != brief
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(bold, brief, strict=True)], abs=1e-5)  # type: ignore[operator]


def test_equal_replies_are_dropped(world: World) -> None:
    (name,) = world.add(1)
    with world.journal.read() as session:
        own = array("i")
        own.frombytes(session.get_one(InteractionRow, name).token_ids)
    draw(world, name, [own.tolist()])
    assert grader(world).grade(8) == 1
    state, reason, scores = outcome_of(world, name)
    assert (
        state == "dropped" and str(reason).startswith("no spread: ") and scores[0] == pytest.approx(scores[1], abs=1e-5)
    )


def test_a_hint_cannot_be_inserted_into_a_prompt_of_another_template(world: World) -> None:
    (name,) = world.add(1)
    draw(world, name)
    with world.journal.write() as session:
        session.get_one(InteractionRow, name).prompt_rest = array("i", [7, 7, 7]).tobytes()
    assert grader(world).grade(8) == 1
    assert outcome_of(world, name)[:2] == ("dropped", "hint lost: the prompt has no place for the wish")


def test_the_learner_scores_what_was_drawn_and_learns_from_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = world.add(5)
    draw(world, names[0])
    monkeypatch.setattr(
        "burnish.learner.grading.hint_grader.MIN_SPREAD", 0.0
    )  # the tiny model is random: no hint changes it much
    loop = Loop(
        world.ledger,
        world.store,
        world.trainer,
        Recipe(**SETTINGS),
        None,
        groups=GroupLedger(world.journal, "agent", grader(world)),
    )
    assert loop.run_once()
    assert world.store.manifest("agent", 1)["groups"] == [names[0]]
    world.promote(1, 0)
    assert outcome_of(world, names[0])[0] == "spent"


def test_groups_are_scored_even_if_no_step_is_due(world: World) -> None:
    loop = Loop(
        world.ledger,
        world.store,
        world.trainer,
        Recipe(**SETTINGS),
        None,
        groups=GroupLedger(world.journal, "agent", grader(world)),
    )
    assert not loop.run_once()  # recovers first
    (name,) = world.add(1)
    draw(world, name)
    assert not loop.run_once()
    assert outcome_of(world, name)[0] != "drawn"


def test_the_sandbox_base_ranks_replies_that_follow_the_hint_higher() -> None:
    """Every reply that follows a hint outranks every one that does not, over prompts that it was not trained on."""
    policy = Policy.load(MODEL, rank=16, alpha=32, threads=1, device="cpu")
    plain: list[Text] = []
    hinted: list[Text] = []
    is_kept: list[bool] = []
    for place, prompt in enumerate(heldout.prompts()[:8]):
        name = language.ATTRIBUTES[place % 4]
        wanted = language.HOUSE_STYLE[name]
        ids = array("i", render(policy.tokenizer, prompt.messages, ()))
        with_wish = hinted_prompt(policy.tokenizer, prompt.messages, (), style_hints.CANONICAL[name, wanted], ids)
        assert with_wish is not None
        for has_it in (wanted, not wanted):
            text = language.render(language.answer(prompt.task), {**language.HOUSE_STYLE, name: has_it})
            reply = array(
                "i", [*policy.tokenizer(text, add_special_tokens=False)["input_ids"], policy.tokenizer.eos_token_id]
            )
            plain.append(Text(ids, reply))
            hinted.append(Text(with_wish, reply))
            is_kept.append(has_it == wanted)
    found = list(zip(posteriors(policy, plain, hinted), is_kept, strict=True))
    assert min(score for score, kept in found if kept) > max(score for score, kept in found if not kept)
