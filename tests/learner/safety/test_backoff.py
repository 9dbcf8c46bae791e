"""Steps get smaller while the gate refuses their versions, and a replay takes them equally small."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import SETTINGS, Make, World

from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.backoff import MAX_REFUSALS, N_CONSIDERED, open_refusals
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import VersionRow
from burnish.learner.data.anchors import Anchors
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import reproduce
from burnish.learner.run.trainer import Trainer
from burnish.records import VersionState

ASKED = {"retention": {"n": 96, "margin": 0.1, "n_lost": 9}}


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def made(world: World) -> int:
    world.add(5)
    assert world.loop.run_once()
    return max(world.states())


def refuse(world: World, number: int, evidence: dict[str, Any]) -> None:
    with world.journal.write() as session:
        lifecycle.refuse(session, "agent", number, reason="no", evidence=evidence)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], 0.0),
        ([True] * 9, 0.0),
        ([False], 1.0),
        ([True, False, True], 0.75),
        ([False, False, True, True, True, True], 1.0),
        ([False] * 5, MAX_REFUSALS),
        ([False] * 6, 0.0),
        ([False] * 8, 2.0),
        ([False] * 5 + [True, False], 0.0),
    ],
)
def test_golden_open_refusals(outcomes: list[bool], expected: float) -> None:
    assert open_refusals(outcomes) == expected


@given(st.lists(st.booleans(), max_size=N_CONSIDERED))
def test_a_refusal_adds_one_or_resets_and_a_good_version_never_adds(outcomes: list[bool]) -> None:
    before, refused = open_refusals(outcomes), open_refusals([*outcomes, False])
    assert 0.0 <= open_refusals([*outcomes, True]) <= before <= MAX_REFUSALS
    assert refused == (before + 1.0 if before + 1.0 <= MAX_REFUSALS else 0.0)


def test_only_the_first_refusal_in_a_row_is_free_if_its_rows_come_once_more() -> None:
    assert open_refusals([True, False, False, False], {1, 2, 3}) == 2.0
    assert open_refusals([False, True, False], {0, 2}) == 0.0
    assert open_refusals([False, True, False], {2}) == 0.75


@pytest.mark.parametrize("n_new", [0, 5])
def test_a_version_whose_rows_come_once_more_does_not_count(world: World, n_new: int) -> None:
    """Steady traffic adds new rows to those that come again. The refusal after that counts all the same."""
    for number, rate in ((1, 1.0), (2, 1.0), (3, 0.5)):
        assert world.ledger.history.rate(0.5) == rate
        if number == 3:
            break
        world.add(5 if number == 1 else n_new)
        assert world.loop.run_once()
        with world.journal.write() as session:
            lifecycle.refuse(session, "agent", number, reason="no", evidence=ASKED, gives_back=True)


def test_only_what_a_version_had_become_counts(world: World) -> None:
    expected = [1.0, 1.0, 0.5, 0.25, 0.5**1.75]
    for number, rate in enumerate(expected, 1):
        assert world.ledger.history.rate(0.5) == pytest.approx(rate)
        assert world.ledger.history.rate(1.0) == 1.0
        assert made(world) == number
        if number == 1:
            refuse(world, 1, {"mechanical": "a file is damaged"})
        elif number == 3:
            refuse(world, 3, {"acceptance": {"n": 120, "n_passed": 3}})
        elif number == 4:
            world.promote(4, expected=0)
        else:
            refuse(world, number, ASKED)


def test_an_undecided_version_does_not_count(world: World) -> None:
    made(world)
    assert world.ledger.history.rate(0.5) == 1.0


def test_a_version_that_was_rolled_back_counts_as_refused(world: World) -> None:
    world.promote(made(world), expected=0)
    with world.journal.write() as session:
        session.get_one(VersionRow, ("agent", 1)).state = VersionState.ROLLED_BACK
    assert world.ledger.history.rate(0.5) == 0.5


def test_a_step_after_a_refusal_is_smaller_and_is_reproduced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(world)
    refuse(world, first, ASKED)
    second = made(world)
    whole, half = (world.store.verify("agent", number) for number in (first, second))
    assert "rate" not in whole and half["rate"] == 0.5
    assert half["metrics"]["learning_rate"] == 0.5 * whole["metrics"]["learning_rate"]

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return world.make_trainer(**SETTINGS)

    monkeypatch.setattr(reproduce, "trainer_for", trainer_for)
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: Anchors([]))
    result = reproduce.reproduce(Settings(state_dir=world.store.root.parent), world.journal, "agent", second)
    assert result.is_same and result.digest == world.digest(second, WEIGHTS)
