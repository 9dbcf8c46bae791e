"""Anchors pull harder where the gate has found an agent forgetful, and a replay pulls as hard as the step did."""

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import SETTINGS, Make, World

from adapters import registry
from adapters.gate import tolerated
from burnish.config import Settings
from burnish.journal import Journal
from learner import replay
from learner.adapter_file import WEIGHTS
from learner.anchors import Anchors
from learner.forgetting import MOST, Forgetting
from learner.loop import Loop
from learner.rows import Text
from learner.step import Trainer

SET = {"n": 96, "margin": 0.1}
LIMIT = tolerated(96, 0.1)
ANCHORS = Anchors([Text(array("i", [5, 6, 7]), array("i", [i, 9, 0])) for i in range(20, 30)])


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def retention(n_lost: int, n_open: int = 0) -> dict[str, Any]:
    return {"retention": {**SET, "n_lost": n_lost, "n_open": n_open}}


def with_anchors(world: World, **changes: Any) -> Loop:
    trainer = world.make_trainer(**SETTINGS | changes)
    return Loop(world.ledger, world.store, trainer, trainer.settings, ANCHORS)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Forgetting(), 1.0),
        (Forgetting(2, 4), 1.0),
        (Forgetting(3, 4), 2.0),
        (Forgetting(4, 4), 4.0),
        (Forgetting(4, 4, 1), 8.0),
        (Forgetting(0, 4, 1), 2.0),
        (Forgetting(0, 0, 2), 4.0),
        (Forgetting(4, 4, 9), MOST),
    ],
)
def test_golden_factors(seen: Forgetting, expected: float) -> None:
    assert seen.factor(2.0) == expected
    assert seen.factor(1.0) == 1.0


@given(st.integers(0, 96), st.integers(0, 96), st.integers(0, 2000), st.floats(1.0, 1e6))
def test_it_never_lets_go_and_never_takes_over(n_lost: int, n_tolerated: int, n_refused: int, growth: float) -> None:
    factor = Forgetting(n_lost, n_tolerated, n_refused).factor(growth)
    assert 1.0 <= factor <= MOST
    assert Forgetting(n_lost + 1, n_tolerated, n_refused).factor(growth) >= factor


def test_what_the_gate_saw_is_read_from_the_journal(world: World) -> None:
    """v1 live at the limit; of its children v2 forgot too much, v3 was refused for something else."""
    for number in (1, 2, 3):
        world.add(5)
        assert world.loop.run_once()
        with world.journal.write() as session:
            if number == 1:
                registry.promote(session, "agent", 1, expected=0, actor="gate", evidence=retention(LIMIT - 2, 2))
            elif number == 2:
                registry.refuse(session, "agent", 2, reason="forgot", evidence=retention(LIMIT + 1))
            else:
                registry.refuse(session, "agent", 3, reason="length", evidence=retention(0))
    assert world.ledger.forgetting(0) == Forgetting()
    assert world.ledger.forgetting(1) == Forgetting(LIMIT, LIMIT, 1)
    assert world.ledger.forgetting(2) == Forgetting(LIMIT + 1, LIMIT, 0)


def test_a_step_after_a_refusal_pulls_harder_and_is_made_again_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = with_anchors(world)
    world.add(5)
    assert loop.run_once()
    with world.journal.write() as session:
        registry.refuse(session, "agent", 1, reason="forgot", evidence=retention(LIMIT + 1))
    world.add(5)
    assert loop.run_once()
    assert world.store.verify("agent", 2)["emphasis"] == {"anchor": 2.0}
    assert "emphasis" not in world.store.verify("agent", 1)

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return world.make_trainer(**SETTINGS)

    monkeypatch.setattr(replay, "trainer_for", trainer_for)
    monkeypatch.setattr(replay, "anchors_for", lambda *_: ANCHORS)
    told = replay.replay(Settings(state_dir=world.store.root.parent), world.journal, "agent", 2)
    assert told.is_same and told.digest == world.digest(2, WEIGHTS)


def test_without_growth_or_anchors_nothing_changes(world: World) -> None:
    for loop in (with_anchors(world, anchor_growth=1.0), world.loop):
        for _ in range(2):
            world.add(5)
            assert loop.run_once()
            number = max(world.states())
            with world.journal.write() as session:
                registry.refuse(session, "agent", number, reason="forgot", evidence=retention(LIMIT + 1))
            assert "emphasis" not in world.store.verify("agent", number)
        loop.let_go()


def test_emphasis_scales_one_term_alone(make_trainer: Make, make_samples: Any) -> None:
    """Only the total differs, by the anchors' loss times what was added to their weight."""
    plain, pulled = (
        make_trainer(**SETTINGS).step(make_samples(6), ANCHORS.texts, emphasis=emphasis).metrics
        for emphasis in ({}, {"anchor": 3.0})
    )
    weight = make_trainer(**SETTINGS).settings.anchor_weight
    assert pulled["loss/anchor"] == plain["loss/anchor"]
    assert pulled["loss"] - plain["loss"] == pytest.approx(2.0 * weight * plain["loss/anchor"], rel=1e-5)
