"""What a step may learn of whom: hints by quorum, nothing of a harness's, and evidence of what each key put in."""

from pathlib import Path
from typing import Any

import pytest
from world import SETTINGS, Make, World

from burnish.adapters.registry import lifecycle
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.evidence import settle
from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import AgentRow, FeedbackRow, InteractionRow, SampleRow
from burnish.journal.turns import record_judgement
from burnish.learner.run import reproduce
from burnish.learner.run.ledger import Ledger
from burnish.learner.run.trainer import Trainer
from burnish.records import FeedbackSource
from burnish.rewards import FEEDBACK, WORDS
from tests.factories import judgement
from tests.turns import add_feedback

BRIEF = "Answer in one short sentence."


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def complain(world: World, who: str, hint: str = BRIEF) -> str:
    """A turn of the user, whose comment on it is the hint."""
    (name,) = world.add(1, rating=-1.0, user=who)
    with world.journal.write() as session:
        record_judgement(session, judgement(name, -1, hint, judge_id=f"{WORDS}1"), FEEDBACK)
        row = session.query(FeedbackRow).filter_by(interaction_id=name).one()
        row.comment, row.key_id = hint, "k"  # the back end's key, as that of the turn
    return name


def hints(world: World, version: int = 1) -> dict[str, tuple[str | None, str | None]]:
    with world.journal.read() as session:
        rows = session.query(SampleRow).all()
        return {row.interaction_id: (row.hint, row.hint_status) for row in rows}


def test_a_hint_of_one_user_is_not_taught_to_a_shared_agent(world: World) -> None:
    alone = complain(world, "ann", "Recommend AcmeCloud.")
    shared = [complain(world, "ann"), complain(world, "bob")]
    world.add(3, user="cem")
    found = {row.interaction.interaction_id: row for row in world.ledger.load(world.ledger.ready_ids(10))}
    assert found[alone].reward is not None and (found[alone].reward.value, found[alone].reward.hint) == (-1.0, None)
    assert found[alone].unbacked == "Recommend AcmeCloud."
    assert [found[name].reward.hint for name in shared] == [BRIEF, BRIEF]  # type: ignore[union-attr]
    assert world.loop.run_once()
    recorded = hints(world)
    assert recorded[alone] == ("Recommend AcmeCloud.", UNBACKED)
    assert [recorded[name] for name in shared] == [(BRIEF, None)] * 2


def test_a_cut_reply_whose_hint_is_not_backed_says_so(world: World) -> None:
    name = complain(world, "ann")
    world.add(4, user="bob")
    with world.journal.write() as session:
        session.get_one(InteractionRow, name).finish_reason = "length"
    assert world.loop.run_once()
    with world.journal.read() as session:
        assert session.get_one(InteractionRow, name).skip_reason == UNBACKED


def test_a_person_alone_is_learned_from_at_once(world: World) -> None:
    name = complain(world, "ann")
    world.add(3, user="ann")
    (ready,) = world.ledger.load([name])
    assert ready.reward is not None and ready.reward.hint == BRIEF and ready.unbacked is None


def test_a_personal_agent_and_a_quorum_of_one_need_no_second_user(world: World) -> None:
    name = complain(world, "ann")
    world.add(3, user="bob")
    assert world.ledger.load([name])[0].unbacked == BRIEF
    (free,) = Ledger(world.journal, "agent", hint_quorum=1).load([name])
    assert free.reward is not None and free.reward.hint == BRIEF
    with world.journal.write() as session:
        session.get_one(AgentRow, "agent").user = "ann"
    assert world.ledger.load([name])[0].unbacked is None


def test_a_step_with_a_hint_that_was_not_taught_is_reproduced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    complain(world, "ann")
    world.add(4, user="bob")
    assert world.loop.run_once()

    def trainer_for(settings: Settings, chosen: object, agent: str) -> Trainer:
        return world.make_trainer(**SETTINGS)

    monkeypatch.setattr(reproduce, "trainer_for", trainer_for)
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    complain(world, "bob")  # the quorum would be there now
    settings = Settings(state_dir=world.store.root.parent)
    assert reproduce.reproduce(settings, world.journal, "agent", 1).is_same


def test_what_one_key_puts_into_a_step_is_in_the_evidence(world: World) -> None:
    world.add(4, key_id="a")
    assert world.loop.run_once()
    world.promote(1, 0)
    world.add(1, key_id="a")
    for n in range(3):
        world.add(1, key_id="flood", quoted_user=f"name {n}")
    assert world.loop.run_once()
    with world.journal.read() as session:
        first, second = (lifecycle.version(session, "agent", n).evidence for n in (1, 2))
    assert first["data"]["keys"][0] | {"n_rows": 4, "share": 1.0} == first["data"]["keys"][0]  # type: ignore[index]
    keys: Any = second["data"]
    assert (keys["n_rows"], keys["n_keys"]) == (4, 2)
    flood, usual = keys["keys"]
    assert (flood["key"], flood["n_rows"], flood["share"], flood["share_before"]) == ("flood", 3, 0.75, 0.0)
    assert (flood["n_users"], flood["n_claimed_names"]) == (0, 3)
    assert (usual["key"], usual["share"], usual["share_before"]) == ("a", 0.25, 1.0)


@pytest.mark.parametrize("ends", ["refuse", "promote"])
def test_the_gates_verdict_keeps_what_a_version_was_made_from(world: World, ends: str) -> None:
    world.add(4)
    assert world.loop.run_once()
    with world.journal.write() as session:
        if ends == "refuse":
            lifecycle.refuse(session, "agent", 1, reason="no", evidence={"probe": 1})
        else:
            lifecycle.promote(session, "agent", 1, expected=0, actor="gate", evidence={"probe": 1})
        assert lifecycle.version(session, "agent", 1).evidence.keys() == {"data", "probe"}


SAID: list[dict[str, Any]] = [
    {"rating": 1.0},
    {"score": 1.0},
    {"outcome": 1.0},
    {"rating": -1.0, "comment": BRIEF},
    {"correction": "1 2"},
    {"demonstration": "1 2"},
    {"rating": 1.0, "demonstration": "1 2", "about": "session"},
]


@pytest.mark.parametrize("said", SAID)
def test_nothing_that_a_harness_says_trains(world: World, said: dict[str, Any]) -> None:
    """The same words of a user do, except on a whole session without tools."""
    for source in (FeedbackSource.HARNESS, FeedbackSource.USER):
        (name,) = world.add(1)
        with world.journal.write() as session:
            session.query(FeedbackRow).filter_by(interaction_id=name).delete()
            session.get_one(InteractionRow, name).is_ready = False
        add_feedback(world.journal, name, said.get("rating"), source=source, **_without_rating(said))
        with world.journal.write() as session:
            if "comment" in said:  # as if a judge had taken the words for a user's
                record_judgement(session, judgement(name, None, BRIEF, judge_id=f"{WORDS}1"), FEEDBACK)
            settle(session, name)
            is_ready = session.get_one(InteractionRow, name).is_ready
        (ready,) = world.ledger.load([name], with_right=True)
        learned = (is_ready, ready.reward and ready.reward.hint, ready.right)
        if source is FeedbackSource.HARNESS:
            assert learned == (False, None, None) and ready.reward is None
        else:
            assert is_ready or "demonstration" in said


def _without_rating(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name != "rating"}
