"""After an opt-out no later step learns from the user's turns in any way, also not from those that steps have used."""

from pathlib import Path

import pytest
from world import SETTINGS, Make, World, draw, outcome_of

from burnish.adapters.verbs import privacy
from burnish.config import Settings
from burnish.errors import Postponed
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.learner.data import good_replies
from burnish.learner.grading.rating_grader import RatingGrader
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import adopt, reproduce, retrain
from burnish.learner.run.trainer import Trainer
from burnish.learner.safety import hint_validation

ANN = ("default", "user", "ann")


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> World:
    """Retraining and reproducing load the tiny model instead of a served one."""

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return make_trainer(**SETTINGS)

    for module in (reproduce, retrain):
        monkeypatch.setattr(module, "trainer_for", trainer_for)
        monkeypatch.setattr(module, "anchors_for", lambda *_: None)
    monkeypatch.setattr(retrain, "kept_answers_for", lambda *_: None)
    return World(journal, tmp_path, make_trainer)


def step(world: World, number: int) -> None:
    assert world.loop.run_once()
    world.promote(number, number - 1)


def opt_out(world: World) -> int:
    with world.journal.write() as session:
        return privacy.opt_out(session, ANN, may_record=True, actor="test")


def learned_from(world: World) -> set[str]:
    """The users, or the keys, whose spent turns the next step would read in one way or another."""
    policy = world.trainer.policy
    with world.journal.read() as session:
        good = good_replies.earlier(session, "agent", 16, policy.tokenizer)
        asked = hint_validation.earlier(session, "agent", 16)
        rated = RatingGrader(world.journal, "agent", policy)._ratings(session)
        names = {each.interaction_id for each in (*good, *asked)} | {each.name for each in rated}
        probed = {tuple(text.prompt_ids) for text in adopt._texts(world.journal, "agent", policy)}
        rows = session.query(InteractionRow).all()
        names |= {row.interaction_id for row in rows if tuple(memoryview(row.prompt_rest).cast("i")) in probed}
        return {row.user or row.key_id for row in rows if row.interaction_id in names}


def test_what_steps_have_used_is_not_learned_again(world: World) -> None:
    world.add(2, rating=1.0, user="ann")
    world.add(2, rating=1.0, user="bob")
    world.add(1, rating=1.0, quoted_user="ann", key_id="hers")
    step(world, 1)
    assert learned_from(world) == {"ann", "bob", "hers"}
    assert opt_out(world) == 0
    assert learned_from(world) == {"bob"}


def test_versions_of_before_are_reproduced_and_retrained_without_it(world: World) -> None:
    world.add(2, user="ann")
    world.add(3)
    step(world, 1)
    opt_out(world)
    settings = Settings(state_dir=world.store.root.parent)
    assert reproduce.reproduce(settings, world.journal, "agent", 1).is_same
    made = retrain.retrain(settings, world.journal, "agent", actor="test")
    assert (made.start, made.version, made.n_rows, made.n_gone) == ("agent@v0", "agent@v2", 3, 2)
    assert world.digest(1, WEIGHTS) != world.digest(2, WEIGHTS)


def test_a_version_on_trial_is_refused_and_others_rows_come_again(world: World) -> None:
    hers = world.add(2, user="ann")
    his = world.add(4, user="bob")
    assert world.loop.run_once()
    assert opt_out(world) == 2
    assert world.states() == {1: "refused"}
    assert world.ledger.ready_ids(10) == his
    assert {world.skip_reasons()[name] for name in hers} == {"opted out"}
    assert world.loop.run_once() and world.rows_of(2) == his


def test_a_step_under_way_is_given_up(world: World) -> None:
    hers = world.add(1, user="ann")
    his = world.add(1, user="bob")
    rows = world.ledger.load([*hers, *his])
    world.ledger.open(0, rows)
    opt_out(world)
    assert [outcome for _, _, outcome, _ in world.steps()] == ["superseded"]
    assert world.ledger.ready_ids(10) == his
    with pytest.raises(Postponed, match="1 of 2 turns were erased or kept out while they were chosen"):
        world.ledger.open(0, rows)


def test_a_shadow_group_of_it_is_dropped(world: World) -> None:
    hers, his = world.add(1, user="ann"), world.add(1, user="bob")
    for name in (*hers, *his):
        draw(world, name)
    opt_out(world)
    assert outcome_of(world, hers[0])[:2] == ("dropped", "opted out")
    assert outcome_of(world, his[0])[:2] == ("drawn", None)
