"""A lineage made again without erased turns: the same weights as if they had never been there."""

from pathlib import Path

import pytest
from sqlalchemy import select
from world import SETTINGS, Make, World

from burnish.adapters.verbs import privacy
from burnish.config import Settings
from burnish.errors import AdapterError, Conflict
from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.journal.tables import FeedbackRow, LoadJob, VersionRow
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import retrain
from burnish.learner.run.retrain import Retrained
from burnish.learner.run.trainer import Trainer
from burnish.records import VersionName

ANN = {"user": "ann"}


@pytest.fixture
def tiny(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Retraining loads the tiny model instead of a served one."""

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return make_trainer(**SETTINGS)

    monkeypatch.setattr(retrain, "trainer_for", trainer_for)
    monkeypatch.setattr(retrain, "anchors_for", lambda *_: None)
    monkeypatch.setattr(retrain, "kept_answers_for", lambda *_: None)
    return make_trainer


def step(world: World, number: int) -> None:
    assert world.loop.run_once()
    world.promote(number, number - 1)


def again(world: World) -> Retrained:
    return retrain.retrain(Settings(state_dir=world.store.root.parent), world.journal, "agent", actor="test")


def erase(world: World, names: list[str]) -> None:
    with world.journal.write() as session:
        privacy.used_again(world.store, session, names)
        erasure.erase_turns(session, names)
        erasure.drop_unused(session)


def test_the_weights_are_those_of_a_run_without_the_user(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    world = World(journal, tmp_path, tiny)
    world.add(4)
    step(world, 1)
    world.add(4)
    hers = world.add(2, **ANN)
    step(world, 2)
    hers += world.add(1, **ANN)
    world.add(4)
    step(world, 3)
    other = Journal.open(f"sqlite:///{tmp_path / 'other' / 'journal.db'}")
    without = World(other, tmp_path / "other", tiny)
    without.add(4)
    step(without, 1)
    without.add(4)
    step(without, 2)
    without.n_turns += 3  # the same numbers as in the other world
    without.add(4)
    step(without, 3)
    assert world.digest(1, WEIGHTS) == without.digest(1, WEIGHTS)
    assert world.digest(3, WEIGHTS) != without.digest(3, WEIGHTS)

    erase(world, hers)
    made = again(world)
    assert made == Retrained("agent", "agent@v3", "agent@v1", "agent@v4", 2, 8, 3)
    assert world.digest(4, WEIGHTS) == without.digest(3, WEIGHTS)
    with journal.read() as session:
        row = session.get_one(VersionRow, ("agent", 4))
        assert (row.state, row.parent, row.origin) == ("candidate", 1, "retrain")
        assert session.get_one(LoadJob, "agent@v4").state == "queued"
        direct = {VersionName("agent", 2), VersionName("agent", 3)}
        assert privacy.descended(session, direct) == direct
    other.close()


def test_rewards_that_rest_on_erased_words_are_left_out(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    """Ann rated one of Bob's turns. Without her the turn has no reward, so the row is not learned."""
    world = World(journal, tmp_path, tiny)
    world.add(4)
    step(world, 1)
    rated = world.add(1, user="bob")
    with journal.write() as session:
        said = session.scalars(select(FeedbackRow).where(FeedbackRow.interaction_id == rated[0])).one()
        said.user = "ann"
    world.add(4)
    step(world, 2)
    with journal.write() as session:
        erasure.erase_feedback(session, *erasure.feedback_of(("default", "user", "ann")))
    assert again(world) == Retrained("agent", "agent@v2", "agent@v1", "agent@v3", 1, 4, 1)
    without = World(Journal.open(f"sqlite:///{tmp_path / 'other' / 'journal.db'}"), tmp_path / "other", tiny)
    without.add(4)
    step(without, 1)
    without.n_turns += 1
    without.add(4)
    step(without, 2)
    assert world.digest(3, WEIGHTS) == without.digest(2, WEIGHTS)
    without.journal.close()


def test_a_retrained_version_can_be_retrained(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    world = World(journal, tmp_path, tiny)
    hers, his = world.add(2, **ANN), world.add(2, user="bob")
    world.add(3)
    step(world, 1)
    erase(world, hers)
    assert again(world).version == "agent@v2"
    with pytest.raises(Conflict, match="agent@v2 is still on trial; try again when the gate has decided"):
        again(world)
    world.promote(2, 1)
    assert again(world).version is None
    with journal.read() as session:
        assert privacy.used_again(world.store, session, his) == {VersionName("agent", 1), VersionName("agent", 2)}
    erase(world, his)
    assert again(world) == Retrained("agent", "agent@v2", "agent@v0", "agent@v3", 1, 3, 2)


def test_if_nothing_is_left_the_start_is_named(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    world = World(journal, tmp_path, tiny)
    erased = world.add(5, **ANN)
    step(world, 1)
    erase(world, erased)
    assert again(world) == Retrained("agent", "agent@v1", "agent@v0", None, 0, 0, 5)
    assert world.files() == ["v000001"]


def test_a_lineage_whose_files_were_removed_is_made_again_from_where_there_are_some(
    tiny: Make, journal: Journal, tmp_path: Path
) -> None:
    world = World(journal, tmp_path, tiny)
    for number in range(1, 4):
        world.add(4)
        if number == 3:
            hers = world.add(2, **ANN)
        step(world, number)
    expected = world.digest(1, WEIGHTS)
    for number in (1, 2):  # as retention does after more live versions
        assert world.store.remove("agent", number)
    with journal.read() as session:
        assert privacy.used_again(world.store, session, hers) == {VersionName("agent", 3)}
    erase(world, hers)
    assert again(world) == Retrained("agent", "agent@v3", "agent@v0", "agent@v4", 3, 12, 2)
    assert expected not in (world.digest(3, WEIGHTS), world.digest(4, WEIGHTS))
    without = World(Journal.open(f"sqlite:///{tmp_path / 'other' / 'journal.db'}"), tmp_path / "other", tiny)
    for number in range(1, 4):
        without.add(4)
        step(without, number)
    assert world.digest(4, WEIGHTS) == without.digest(3, WEIGHTS)
    without.journal.close()


def test_a_removed_version_that_used_an_erased_turn_is_listed(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    world = World(journal, tmp_path, tiny)
    hers = world.add(5, **ANN)
    step(world, 1)
    world.add(5)
    step(world, 2)
    with journal.read() as session:
        before = privacy.used_again(world.store, session, hers)
        assert world.store.remove("agent", 1)
        assert VersionName("agent", 1) in before == privacy.used_again(world.store, session, hers)


def test_the_evidence_says_whose_data_is_left(tiny: Make, journal: Journal, tmp_path: Path) -> None:
    world = World(journal, tmp_path, tiny)
    hers = world.add(2, key_id="hers", **ANN)
    world.add(4)
    step(world, 1)
    erase(world, hers)
    again(world)
    with journal.read() as session:
        data = session.get_one(VersionRow, ("agent", 2)).evidence["data"]
    assert (data["n_rows"], [(each["key"], each["n_rows"]) for each in data["keys"]]) == (4, [("k", 4)])


def test_a_version_that_nothing_is_known_of_is_an_error_with_the_remedy(
    tiny: Make, journal: Journal, tmp_path: Path
) -> None:
    world = World(journal, tmp_path, tiny)
    world.add(5)
    step(world, 1)
    world.store.forget("agent")
    with pytest.raises(AdapterError, match=r"nothing says how agent@v1 was made.*burnish rollback --to 0"):
        again(world)


def test_a_failure_leaves_a_number_and_the_reason(
    tiny: Make, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(journal, tmp_path, tiny)
    hers = world.add(2, **ANN)
    world.add(3)
    step(world, 1)
    erase(world, hers)

    def fail(*_: object, **__: object) -> None:
        raise AdapterError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(retrain, "build_probe", fail)
        with pytest.raises(AdapterError, match="no memory left"):
            again(world)
    assert world.states() == {1: "live", 2: "refused"}
    assert again(world).version == "agent@v3"
