"""Shadow groups in a step: a separate term, whole or not at all, spent once, and reproduced bit for bit."""

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from world import SETTINGS, Make, World

from burnish.config import Recipe, Settings
from burnish.errors import AdapterError
from burnish.journal import Journal, shadows, steps
from burnish.journal.shadows import Drawn
from burnish.journal.tables import GroupSampleRow, InteractionRow, ShadowGroupRow
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import Sample
from burnish.learner.data.shadow_groups import Group, GroupLedger, Member
from burnish.learner.objectives.group_gradient import GroupGradient
from burnish.learner.objectives.registry import OF_LIVE_REPLIES
from burnish.learner.run import loop as loop_module
from burnish.learner.run import reproduce
from burnish.learner.run.loop import Loop
from burnish.learner.run.trainer import Trainer
from burnish.learner.step.length import GROUPS_SHARE

IDS = ([10, 20, 30, 0], [11, 21, 0], [12, 22, 32, 42, 0])


def group_of(trainer: Trainer, scores: tuple[float, ...] = (1.0, 0.0, 0.5), **changes: Any) -> Group:
    """Three replies to one prompt, on policy."""
    prompt = [3, 100, 101, 4]
    texts = [Text(prompt, ids) for ids in IDS]
    found = trainer.policy.logprobs(texts)
    members = [
        Member(array("i", ids), array("f", values.tolist()), score)
        for ids, values, score in zip(IDS, found, scores, strict=True)
    ]
    made = Group("t0", 0, array("i", prompt), tuple(members), "s", "default", "k", None)
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("dr_grpo", [0.5, -0.5, 0.0]), ("grpo", [1.0, -1.0, 0.0]), ("rloo", [0.75, -0.75, 0.0])],
)
def test_each_member_is_compared_with_its_group(make_trainer: Make, estimator: str, expected: list[float]) -> None:
    trainer = make_trainer()
    rows = group_of(trainer).rows()
    objective = GroupGradient(clip_low=0.2, clip_high=0.28, dual_clip=3.0, advantage=estimator)
    assert objective.stamp(rows, trainer.policy)["n_groups"] == 1.0
    found = [row.streams["group_advantages"] for row in rows]
    assert [values.tolist() for values in found] == [
        pytest.approx([value] * row.n_tokens, abs=1e-5) for row, value in zip(rows, expected, strict=True)
    ]


def test_high_scores_become_likelier_and_low_scores_less_likely(make_trainer: Make) -> None:
    trainer = make_trainer(kl_weight=0.0)
    group = group_of(trainer)
    texts = [Text(group.prompt_ids, member.token_ids) for member in group.members]
    before = [values.sum().item() for values in trainer.policy.logprobs(texts)]
    for _ in range(3):
        result = trainer.step([], groups=[group])
        assert result.is_update and result.groups == ("t0",) and result.trained == ()
    after = [values.sum().item() for values in trainer.policy.logprobs(texts)]
    assert after[0] > before[0] and after[1] < before[1]


def test_a_group_changes_nothing_of_the_live_rows_term(
    make_trainer: Make, make_samples: Callable[..., list[Sample]]
) -> None:
    alone, beside = make_trainer(), make_trainer()
    without = alone.step(make_samples(6))
    with_group = beside.step(make_samples(6), groups=[group_of(beside)])
    for name in ("loss/policy_gradient", "policy_gradient/n_rows", "loss/distillation", "n_trained"):
        assert with_group.metrics[name] == pytest.approx(without.metrics[name], abs=1e-6)
    assert with_group.metrics["n_groups"] == 1.0 and "loss/group_gradient" not in without.metrics
    assert with_group.metrics["kl_to_base/n_rows"] == without.metrics["kl_to_base/n_rows"] + 3


def test_a_step_from_groups_alone_is_half_as_long(
    make_trainer: Make, make_samples: Callable[..., list[Sample]]
) -> None:
    alone, beside = make_trainer(step_kl=0.02), make_trainer(step_kl=0.02)
    found = alone.step([], groups=[group_of(alone)])
    assert found.groups == ("t0",) and found.metrics["signal"] <= GROUPS_SHARE
    assert found.metrics["step_kl"] <= 1.25 * GROUPS_SHARE * 0.02
    found = beside.step(make_samples(8), groups=[group_of(beside)])
    assert found.groups == ("t0",) and found.metrics["signal"] > GROUPS_SHARE


def test_equal_scores_give_no_gradient(make_trainer: Make) -> None:
    trainer = make_trainer()
    result = trainer.step([], groups=[group_of(trainer, (0.5, 0.5, 0.5))])
    assert not result.is_update and result.ungrouped == {"t0": "no spread"} and result.groups == ()


def test_a_cap_weighs_all_members_alike(make_trainer: Make, make_samples: Callable[..., list[Sample]]) -> None:
    samples = [
        replace(sample, key_id=f"k{i}", session=f"s{i}") for i, sample in enumerate(make_samples(6, hints=False))
    ]
    trainer = make_trainer(new_users_cap=1.0, session_cap=1.0)
    groups = [group_of(trainer, interaction_id=f"g{i}", key_id="loud") for i in range(6)]
    result = trainer.step(samples, groups=groups)
    assert result.is_update and set(result.group_weights) == {f"g{i}" for i in range(6)} and result.weights == {}
    assert all(weight < 1.0 for weight in result.group_weights.values())


def test_the_shuffled_control_permutes_scores_within_a_group(make_trainer: Make) -> None:
    group = group_of(make_trainer())
    found = {tuple(group.shuffled(torch.Generator().manual_seed(seed)).scores) for seed in range(20)}
    assert len(found) > 1 and all(sorted(scores) == [0.0, 0.5, 1.0] for scores in found)


def learner_of(world: World, *, is_awaited: bool = False) -> Loop:
    groups = GroupLedger(world.journal, "agent", is_awaited=is_awaited)
    return Loop(world.ledger, world.store, world.trainer, Recipe(**SETTINGS), None, groups=groups)


def add_group(world: World, name: str, scores: tuple[float, ...] = (0.0, 1.0, 0.5), logprob: float = -5.0) -> None:
    drawn = [
        Drawn({"role": "assistant", "content": "x"}, "stop", array("i", ids), array("f", [logprob] * len(ids)))
        for ids in IDS[1:]
    ]
    with world.journal.write() as session:
        assert shadows.begin(session, session.get_one(InteractionRow, name), 3, "Use bold.", "j")
        assert shadows.file(session, name, drawn)
        assert shadows.score(session, name, scores, "judge/abc", [[0, 10, 5]])


def state_of(world: World, name: str) -> tuple[str, str | None, int | None]:
    with world.journal.read() as session:
        row = session.get_one(ShadowGroupRow, name)
        return row.state, row.reason, row.spent_step


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def test_a_step_spends_its_groups_with_its_rows_and_reports_them(world: World) -> None:
    names = world.add(5)
    add_group(world, names[0])
    add_group(world, names[1], (0.5, 0.5, 0.5))
    loop = learner_of(world)
    assert loop.run_once()
    assert state_of(world, "t1") == ("dropped", "no spread", None)
    assert state_of(world, "t0")[0] == "scored"  # the step's outcome is not known yet
    world.promote(1, 0)
    state, _, step = state_of(world, "t0")
    assert state == "spent" and step == world.spent()["t0"]
    assert world.store.manifest("agent", 1)["groups"] == ["t0"]
    with world.journal.read() as session:
        story = steps.story(session, "agent", 1)
    assert [(each["interaction_id"], each["scores"], each["skipped"]) for each in story["groups"]] == [
        ("t0", [0.0, 1.0, 0.5], None)
    ]
    world.add(5)
    assert loop.run_once()
    with world.journal.read() as session:
        assert session.query(GroupSampleRow).count() == 1  # spent exactly once


def test_a_due_step_waits_for_a_group_that_is_drawn(world: World) -> None:
    name = world.add(5)[0]
    loop = learner_of(world, is_awaited=True)
    with world.journal.write() as session:
        shadows.begin(session, session.get_one(InteractionRow, name), 3, "", None)
    assert not loop.run_once()
    assert time.time() < loop.due_at < time.time() + 60.0

    with world.journal.write() as session:
        shadows.drop(session, name, "the rater is unfit")
    assert loop.run_once() and loop.due_at == math.inf


def test_a_due_step_does_not_wait_for_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = world.add(5)[0]
    with world.journal.write() as session:
        shadows.begin(session, session.get_one(InteractionRow, name), 3, "", None)
    loop = learner_of(world, is_awaited=True)
    assert not loop.run_once()
    monkeypatch.setattr(loop_module, "GROUPS_WAIT", 0.0)
    assert loop.run_once()
    assert state_of(world, name)[0] == "drawing"  # for a later step


def test_groups_may_be_begun_for_the_latest_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose users rate enough may get groups for the turns that make a step due. Another waits for nothing."""
    monkeypatch.setattr(loop_module, "PICK_WAIT", 60.0)
    world.add(5)
    loop = learner_of(world, is_awaited=True)
    assert loop.run_once()
    world.promote(1, 0)
    world.add(5)
    monkeypatch.setattr(shadows, "are_rated", lambda session, agent: True)
    assert not loop.run_once()
    monkeypatch.setattr(loop_module, "PICK_WAIT", 0.0)
    assert loop.run_once()


def test_enough_awaited_groups_take_the_step_over(world: World) -> None:
    """The live replies are spent, but no objective looks at them. The version can be made again."""
    names = world.add(5)
    for name in names[:2]:
        add_group(world, name)
    loop = learner_of(world, is_awaited=True)
    assert loop.run_once()
    manifest = world.store.manifest("agent", 1)
    assert set(manifest["groups"]) == set(names[:2]) and manifest["metrics"]["n_trained"] == 0.0
    assert "loss/group_gradient" in manifest["metrics"] and "loss/policy_gradient" not in manifest["metrics"]
    assert all(manifest["emphasis"][name] == 0.0 for name in ("policy_gradient", "distillation", "sft", "dpo"))
    world.promote(1, 0)
    assert set(world.spent()) == set(names) and state_of(world, names[0])[0] == "spent"


def test_where_nothing_is_praised_any_more_groups_do_not_take_the_step_over(world: World) -> None:
    """Their scores come from earlier ratings, and people want something else now."""
    names = world.add(8, rating=-1.0)
    for name in names[:2]:
        add_group(world, name)
    assert learner_of(world, is_awaited=True).run_once()
    manifest = world.store.manifest("agent", 1)
    assert "groups" not in manifest and manifest["metrics"]["n_trained"] == 8.0
    assert state_of(world, names[0])[0] == "scored"


@pytest.mark.parametrize("is_awaited", [False, True])
def test_awaited_groups_of_an_earlier_version_are_dropped(world: World, is_awaited: bool) -> None:
    name = world.add(1)[0]
    add_group(world, name)
    ledger = GroupLedger(world.journal, "agent", is_awaited=is_awaited)
    ledger.drop_stale(1, lambda _: lambda _: 1, 4)
    found = ledger.choose(2, 0.0)
    assert [group.interaction_id for group in found] == ([] if is_awaited else [name])
    assert state_of(world, name)[:2] == (("dropped", "stale: 1 versions behind") if is_awaited else ("scored", None))


def test_stale_groups_do_not_take_the_place_of_others(world: World) -> None:
    """A step takes two groups at most. Two of the version before are older, and are not among them."""
    before = world.add(5)[:2]
    for name in before:
        add_group(world, name)
    loop = learner_of(world, is_awaited=True)
    with world.journal.write() as session:
        for name in before:
            session.get_one(ShadowGroupRow, name).version = -1
    latest = world.add(5)[:2]
    for name in latest:
        add_group(world, name)
    loop._recipe = loop._recipe.model_copy(update={"max_groups": 2})
    loop._ledger.history.lags = lambda live: lambda version: 1  # type: ignore[method-assign]
    assert loop.run_once()
    assert set(world.store.manifest("agent", 1)["groups"]) == set(latest)
    assert [state_of(world, name)[1] for name in before] == ["stale: 1 versions behind"] * 2


def test_too_few_awaited_groups_wait_for_others(world: World) -> None:
    names = world.add(5)
    add_group(world, names[0])
    assert learner_of(world, is_awaited=True).run_once()
    manifest = world.store.manifest("agent", 1)
    assert "groups" not in manifest and "loss/policy_gradient" in manifest["metrics"]
    assert state_of(world, names[0])[0] == "scored"


def test_an_objective_that_is_left_out_forgets_what_it_said_before(
    make_trainer: Make, make_samples: Callable[..., list[Sample]]
) -> None:
    trainer = make_trainer()
    assert trainer.step(make_samples(4)).trained
    left_out = dict.fromkeys(OF_LIVE_REPLIES, 0.0)
    result = trainer.step(make_samples(4), (), [group_of(trainer)], left_out)
    assert result.is_update and result.trained == () and len(result.idle) == 4
    assert result.hints == {} and result.refusals == {}


def test_of_a_large_group_the_best_and_the_worst_are_learned() -> None:
    scores = [0.5, 0.9, 0.1, 0.4, 0.6, 0.0, 1.0, 0.45]
    members = tuple(Member(array("i", [number]), array("f", [-1.0]), score) for number, score in enumerate(scores))
    group = Group("t", 1, array("i", [1]), members, "s", "", "k", None)
    places = [(list(row.completion_ids), row.place.score) for row in group.rows() if row.place is not None]
    assert places == [([1], 0.9), ([2], 0.1), ([5], 0.0), ([6], 1.0)]
    assert len(replace(group, members=members[:4]).rows()) == 4


def test_a_step_that_is_superseded_gives_its_groups_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add_group(world, world.add(5)[0])
    loop = learner_of(world)
    with monkeypatch.context() as broken:
        broken.setattr(world.trainer, "take", lambda *_: (_ for _ in ()).throw(AdapterError("disk full")))
        assert loop.run_once()
    assert state_of(world, "t0")[0] == "scored"
    assert loop.run_once()
    world.promote(2, 0)
    assert state_of(world, "t0")[0] == "spent"


def test_groups_that_cannot_be_trained_are_dropped_with_the_reason(world: World) -> None:
    names = world.add(5)
    add_group(world, names[0], logprob=float("nan"))
    add_group(world, names[1])
    with world.journal.write() as session:
        session.get_one(ShadowGroupRow, names[1]).version = -1
    ledger = GroupLedger(world.journal, "agent")
    ledger.drop_stale(0, lambda _: lambda version: 5 if version < 0 else 0, 4)
    assert ledger.choose(8, 0.0) == []
    assert state_of(world, names[0])[:2] == ("dropped", "bad_logprobs: member 1")
    assert state_of(world, names[1])[:2] == ("dropped", "stale: 5 versions behind")


def test_a_version_made_with_groups_comes_out_again_bit_for_bit(
    world: World, make_trainer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_group(world, world.add(5)[0])
    assert learner_of(world).run_once()
    world.promote(1, 0)
    monkeypatch.setattr(reproduce, "trainer_for", lambda *_: make_trainer(**SETTINGS))
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    settings = Settings(state_dir=world.store.root.parent)
    assert reproduce.reproduce(settings, world.journal, "agent", 1).is_same
    with world.journal.write() as session:
        session.query(GroupSampleRow).one().scores = [1.0, 0.0, 0.5]
    assert not reproduce.reproduce(settings, world.journal, "agent", 1).is_same
    with world.journal.write() as session:
        session.delete(session.query(ShadowGroupRow).one())
    with pytest.raises(AdapterError, match="the shadow group of t0, which is no longer in the journal"):
        reproduce.reproduce(settings, world.journal, "agent", 1)
