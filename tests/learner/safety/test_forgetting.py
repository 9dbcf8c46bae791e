"""Anchors weigh more if the gate has found that an agent forgets, and a replay uses the same weight as the step."""

from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from world import SETTINGS, Make, World

from burnish.adapters.evidence.gate import tolerated
from burnish.adapters.registry import lifecycle
from burnish.config import Settings
from burnish.journal import Journal
from burnish.learner.data.anchors import Anchors
from burnish.learner.data.rows import Text
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import reproduce
from burnish.learner.run.loop import Loop
from burnish.learner.run.trainer import Trainer
from burnish.learner.safety.forgetting import MAX_FACTOR, Forgetting, count_refused

SET = {"n": 96, "margin": 0.1}
LIMIT = tolerated(96, 0.1)
ANCHORS = Anchors([Text(array("i", [5, 6, 7]), array("i", [i, 9, 0])) for i in range(20, 30)])


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def retention(n_lost: int, n_open: int = 0) -> dict[str, Any]:
    return {"retention": {**SET, "n_lost": n_lost, "n_open": n_open}}


def unaccepted(n_lost: int = 0) -> dict[str, Any]:
    """Evidence of a version that kept what the base could, and passed too few of the operator's prompts."""
    return {**retention(n_lost), "acceptance": {"n": 360, "n_passed": 251, "n_best": 284}}


def with_anchors(world: World, **changes: Any) -> Loop:
    trainer = world.make_trainer(**SETTINGS | changes)
    return Loop(world.ledger, world.store, trainer, trainer.recipe, ANCHORS)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Forgetting(), 1.0),
        (Forgetting(2, 4), 1.0),
        (Forgetting(3, 4), 2.0),
        (Forgetting(4, 4), 4.0),
        (Forgetting(4, 4, 1), 8.0),
        (Forgetting(0, 4, 1), 2.0),
        (Forgetting(0, 0, 2), 4.0),
        (Forgetting(4, 4, 9), MAX_FACTOR),
    ],
)
def test_golden_factors(found: Forgetting, expected: float) -> None:
    assert found.factor(2.0) == expected
    assert found.factor(1.0) == 1.0


@given(st.integers(0, 96), st.integers(0, 96), st.integers(0, 2000), st.floats(1.0, 1e6))
def test_the_factor_stays_within_its_bounds(n_lost: int, n_tolerated: int, n_refused: int, growth: float) -> None:
    factor = Forgetting(n_lost, n_tolerated, n_refused).factor(growth)
    assert 1.0 <= factor <= MAX_FACTOR
    assert Forgetting(n_lost + 1, n_tolerated, n_refused).factor(growth) >= factor


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"n_lost": 1, "n_asked": 93, "n_open": LIMIT - 1}, 1),  # the gate stopped early, and three more are not lost
        ({"n_lost": 3, "n_asked": 95, "n_open": 1}, 3),
        ({"n_lost": 2, "n_asked": 4, "n_open": 2}, 3),  # half of those that answered are
        ({"n_lost": 0, "n_asked": 0, "n_open": 2}, 2),  # nothing is known
        ({"n_lost": 2, "n_open": 2}, 2),
        ({"n_lost": LIMIT, "n_asked": 96, "n_open": 0}, LIMIT),
    ],
)
def test_unanswered_prompts_are_not_taken_for_lost(world: World, figures: dict[str, Any], expected: int) -> None:
    world.add(5)
    assert world.loop.run_once()
    with world.journal.write() as session:
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence={"retention": {**SET, **figures}})
    assert world.ledger.history.forgetting(1) == Forgetting(expected, LIMIT, 0)


def test_the_gate_s_evidence_is_read_from_the_journal(world: World) -> None:
    """v1 is live at the limit. Of its children, v2 forgot too much, and v3 was refused for something else."""
    for number in (1, 2, 3):
        world.add(5)
        assert world.loop.run_once()
        with world.journal.write() as session:
            if number == 1:
                lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence=retention(LIMIT))
            elif number == 2:
                lifecycle.refuse(session, "agent", 2, reason="forgot", evidence=retention(LIMIT + 1))
            else:
                lifecycle.refuse(session, "agent", 3, reason="length", evidence=retention(0))
    assert world.ledger.history.forgetting(0) == Forgetting()
    assert world.ledger.history.forgetting(1) == Forgetting(LIMIT, LIMIT, 1)
    assert world.ledger.history.forgetting(2) == Forgetting(LIMIT + 1, LIMIT, 0)


def test_anchors_weigh_more_after_a_refusal_and_the_step_is_reproduced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = with_anchors(world)
    for number in (1, 2, 3):
        world.add(5)
        assert loop.run_once()
        with world.journal.write() as session:
            if number == 1:
                lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence=retention(0))
            elif number == 2:
                lifecycle.refuse(session, "agent", 2, reason="forgot", evidence=retention(LIMIT + 1))
    manifest = world.store.verify("agent", 3)
    assert (manifest["parent"], manifest["emphasis"], manifest["has_momentum"]) == (1, {"anchor": 2.0}, False)
    assert not {"emphasis", "has_momentum"} & (
        world.store.verify("agent", 1).keys() | world.store.verify("agent", 2).keys()
    )

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return world.make_trainer(**SETTINGS)

    monkeypatch.setattr(reproduce, "trainer_for", trainer_for)
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: ANCHORS)
    result = reproduce.reproduce(Settings(state_dir=world.store.root.parent), world.journal, "agent", 3)
    assert result.is_same and result.digest == world.digest(3, WEIGHTS)


def test_without_growth_or_anchors_nothing_changes(world: World) -> None:
    for loop in (with_anchors(world, anchor_growth=1.0), world.loop):
        for _ in range(2):
            world.add(5)
            assert loop.run_once()
            number = max(world.states())
            with world.journal.write() as session:
                lifecycle.refuse(session, "agent", number, reason="forgot", evidence=retention(LIMIT + 1))
            assert "emphasis" not in world.store.verify("agent", number)
        loop.release_lease()


def test_a_weight_factor_scales_only_its_own_term(make_trainer: Make, make_samples: Any) -> None:
    """Only the total differs: by the anchors' loss times the increase of their weight."""
    plain, pulled = (
        make_trainer(**SETTINGS).step(make_samples(6), ANCHORS.texts, weight_factors=weight_factors).metrics
        for weight_factors in ({}, {"anchor": 3.0})
    )
    weight = make_trainer(**SETTINGS).recipe.anchor_weight
    assert pulled["loss/anchor"] == plain["loss/anchor"]
    assert pulled["loss"] - plain["loss"] == pytest.approx(2.0 * weight * plain["loss/anchor"], rel=1e-5)


def test_without_momentum_a_step_follows_its_own_gradient(make_trainer: Make, make_samples: Any) -> None:
    """Two trainers with opposite pasts take the same step. Only without momentum do they move in the same direction."""

    def moved(past: float, *, has_momentum: bool) -> torch.Tensor:
        trainer = make_trainer(**SETTINGS)
        trainer.step(make_samples(6), ANCHORS.texts)
        for moments in trainer.optimizer.state.values():
            moments["exp_avg"].fill_(past)
            moments["exp_avg_sq"].fill_(1.0)
        before = trainer.policy.copy_adapter()
        assert trainer.step(make_samples(6), ANCHORS.texts, has_momentum=has_momentum).is_update
        after = trainer.policy.copy_adapter()
        return torch.cat([(after[name] - before[name]).flatten() for name in before])

    assert torch.equal(moved(0.5, has_momentum=False), moved(-0.5, has_momentum=False))
    there, back = moved(0.5, has_momentum=True), moved(-0.5, has_momentum=True)
    assert torch.dot(there, back) < 0.0 < there.norm()


def test_after_two_refusals_a_step_is_shrunk_towards_the_base_and_is_reproduced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """v1 is live. v2, v3 and v4, made from it, forgot too much. v4 and v5 are shrunk towards the base, and record
    it."""
    for number in (1, 2, 3, 4, 5):
        world.add(5)
        assert world.loop.run_once()
        with world.journal.write() as session:
            if number == 1:
                lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence=retention(0))
            elif number < 5:
                lifecycle.refuse(session, "agent", number, reason="forgot", evidence=retention(LIMIT + 1))
    manifests = {number: world.store.verify("agent", number) for number in (1, 2, 3, 4, 5)}
    assert {number: each["shrink"] for number, each in manifests.items() if "shrink" in each} == {4: 0.95, 5: 0.95**2}
    assert manifests[5]["parent"] == 1

    monkeypatch.setattr(reproduce, "trainer_for", lambda *_: world.make_trainer(**SETTINGS))
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    result = reproduce.reproduce(Settings(state_dir=world.store.root.parent), world.journal, "agent", 5)
    assert result.is_same and result.digest == world.digest(5, WEIGHTS)


FORGOT, UNACCEPTED, UNSOUND = retention(LIMIT + 1), unaccepted(LIMIT), {"mechanical_fault": "NaN", **retention(0)}


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([], 0),
        ([FORGOT] * 5, 5),
        ([FORGOT] * 5 + [UNACCEPTED], 2),
        ([FORGOT] * 5 + [UNACCEPTED] * 3, 0),
        ([FORGOT] * 5 + [UNACCEPTED] * 30 + [FORGOT], 1),
        ([UNACCEPTED, FORGOT, UNSOUND, FORGOT], 2),
        ([FORGOT, FORGOT, {**retention(0), "replay": {"n": 24}}], 1),
        ([FORGOT, FORGOT, {**retention(LIMIT + 1), "canary": {}}], 3),
    ],
)
def test_a_refused_child_that_forgot_nothing_halves_the_count(children: list[dict[str, Any]], expected: int) -> None:
    assert count_refused(children) == expected


def test_a_step_is_no_longer_shrunk_if_shrunk_versions_are_refused(world: World) -> None:
    """v1 is live. Three children forgot too much, then two kept all and were not accepted. The next is a whole step
    with momentum.
    """
    loop = with_anchors(world)
    evidence = {1: retention(0), **dict.fromkeys((2, 3, 4), FORGOT), 5: unaccepted(), 6: unaccepted()}
    for number in range(1, 8):
        world.add(5)
        assert loop.run_once()
        with world.journal.write() as session:
            if number == 1:
                lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence=evidence[1])
            elif number < 7:
                lifecycle.refuse(session, "agent", number, reason="worse", evidence=evidence[number])
    manifests = {number: world.store.verify("agent", number) for number in range(2, 8)}
    assert {number: each.get("shrink", 1.0) for number, each in manifests.items()} == {
        2: 1,
        3: 1,
        4: 0.95,
        5: 0.95**2,
        6: 1,
        7: 1,
    }
    assert {number: each.get("emphasis", {}).get("anchor", 1.0) for number, each in manifests.items()} == {
        2: 1,
        3: 2,
        4: 4,
        5: 8,
        6: 2,
        7: 1,
    }
    assert [number for number, each in manifests.items() if each.get("has_momentum", True)] == [2, 7]


@pytest.mark.parametrize(
    ("n_refused", "factor", "expected"),
    [(0, 0.9, 1.0), (1, 0.9, 1.0), (2, 0.9, 0.9), (4, 0.9, 0.729), (99, 0.9, 0.5), (99, 1.0, 1.0)],
)
def test_golden_shrinking(n_refused: int, factor: float, expected: float) -> None:
    assert Forgetting(0, 4, n_refused).shrink(factor) == pytest.approx(expected)


def test_a_shrunk_step_is_the_same_step_between_base_and_adapter(make_trainer: Make, make_samples: Any) -> None:
    """The change of each weight of the base, BA, is that of the whole step times the factor."""

    def added(shrink: float) -> dict[str, torch.Tensor]:
        trainer = make_trainer(**SETTINGS)
        trainer.step(make_samples(6), ANCHORS.texts)
        assert trainer.step(make_samples(6), ANCHORS.texts, shrink=shrink).is_update
        adapter = trainer.policy.copy_adapter()
        return {name: adapter[name.replace("lora_A", "lora_B")] @ adapter[name] for name in adapter if "lora_A" in name}

    whole, half = added(1.0), added(0.5)
    assert whole and all(torch.allclose(half[name], 0.5 * each, atol=1e-7) for name, each in whole.items())
    assert any(each.abs().max() > 1e-4 for each in whole.values())
