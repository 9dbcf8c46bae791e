"""A version made again from the journal: the same bits, or a plain reason why not."""

from pathlib import Path
from typing import Any

import pytest
from world import SETTINGS, Make, World

from burnish.adapters.files.store import AdapterStore
from burnish.config import Recipe, Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.evidence import reward_of
from burnish.journal.tables import InteractionRow, SampleRow, StepRow
from burnish.learner.model import checkpoint
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import reproduce
from burnish.learner.run.trainer import Trainer
from tests.turns import add_feedback


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two versions, the second on top of the first. A replay loads the tiny model instead of a served one."""
    made = World(journal, tmp_path, make_trainer)
    for number in (1, 2):
        made.add(5)
        assert made.loop.run_once()
        made.promote(number, number - 1)

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return make_trainer(**SETTINGS)

    monkeypatch.setattr(reproduce, "trainer_for", trainer_for)
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    return made


def settings_of(world: World) -> Settings:
    return Settings(state_dir=world.store.root.parent)


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_is_reproduced_bit_for_bit(world: World, version: int, tmp_path: Path) -> None:
    result = reproduce.reproduce(settings_of(world), world.journal, "agent", version, tmp_path / "made")
    assert result.is_same and result.n_rows == 5 and result.parent == version - 1
    assert result.digest == world.digest(version, WEIGHTS)
    assert (tmp_path / "made" / WEIGHTS).read_bytes() == (world.store.path("agent", version) / WEIGHTS).read_bytes()
    assert world.files() == ["v000001", "v000002"]


def test_a_reward_that_was_changed_afterwards_is_noticed(world: World) -> None:
    with world.journal.write() as session:
        row = session.query(SampleRow).filter_by(interaction_id="t1").one()
        row.reward = -1.0
    result = reproduce.reproduce(settings_of(world), world.journal, "agent", 1)
    assert not result.is_same and result.max_difference > 0.0 and result.reasons == ()


def test_later_feedback_does_not_change_the_reproduction(world: World) -> None:
    add_feedback(world.journal, "t1", -1.0, feedback_id="late", created_at=1e10)  # t1 was praised when it was trained
    with world.journal.read() as session:
        now = reward_of(session, "t1")
    assert now is not None and now.value == -1.0
    assert reproduce.reproduce(settings_of(world), world.journal, "agent", 1).is_same


def test_other_libraries_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = AdapterStore.verify

    def older(store: AdapterStore, agent: str, version: int) -> dict[str, Any]:
        return {**verify(store, agent, version), "libraries": {"torch": "1.0"}}

    monkeypatch.setattr(AdapterStore, "verify", older)
    (reason,) = reproduce.reproduce(settings_of(world), world.journal, "agent", 1).reasons
    assert reason.startswith("torch was 1.0, is ")


def test_a_missing_record_is_named(world: World) -> None:
    with world.journal.write() as session:
        session.delete(session.query(InteractionRow).filter_by(interaction_id="t0").one())
    with pytest.raises(AdapterError, match="the turn t0, which is no longer in the journal"):
        reproduce.reproduce(settings_of(world), world.journal, "agent", 1)
    with world.journal.write() as session:
        session.delete(session.query(StepRow).filter_by(version=2).one())
    with pytest.raises(AdapterError, match="no step that made agent@v2"):
        reproduce.reproduce(settings_of(world), world.journal, "agent", 2)
    with pytest.raises(AdapterError):
        reproduce.reproduce(settings_of(world), world.journal, "agent", 7)


def test_a_parent_that_was_damaged_is_an_error(world: World) -> None:
    (world.store.path("agent", 1) / checkpoint.OPTIMIZER).write_bytes(b"")
    with pytest.raises(AdapterError, match="optimizer"):
        reproduce.reproduce(settings_of(world), world.journal, "agent", 2)


def test_a_version_with_a_field_that_the_recipe_lacks_cannot_be_made_again() -> None:
    now = Recipe(rank=8).model_dump(mode="json")
    assert reproduce.recipe_of(now) == Recipe(rank=8)
    with pytest.raises(AdapterError, match=r"fields never_heard_of, which this version of Burnish does not know"):
        reproduce.recipe_of({**now, "never_heard_of": 0.0})
