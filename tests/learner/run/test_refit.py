"""A refit starts from the base and learns all good replies; a step that is refused leaves nothing of it."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import perturb
from world import SETTINGS, Make, World

from burnish.config import Settings
from burnish.errors import LearnerError
from burnish.journal import Journal
from burnish.learner.data import good_replies
from burnish.learner.data.good_replies import GoodReply
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import RightKind, Sample
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.run import reproduce
from burnish.learner.run.trainer import NotFinite, Trainer
from burnish.learner.run.work import Work
from burnish.learner.step import refit

Samples = Callable[..., list[Sample]]
Trained = Callable[..., Trainer]
RIGHT = array("i", [40, 41, 42, 0])
OFF = {"rl_weight": 0.0, "distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.5, "sft_weight": 1.0}


def old(samples: list[Sample]) -> list[GoodReply]:
    return good_replies.of_step([replace(s, interaction_id=f"old-{i}", reward=1.0) for i, s in enumerate(samples)])


def test_it_is_due_when_half_as_many_new_ones_have_come() -> None:
    assert not refit.is_due(refit.MIN_ROWS - 1, []) and refit.is_due(refit.MIN_ROWS, [])
    went_live = [refit.Earlier(1, 100, is_refused=False)]
    assert not refit.is_due(49, went_live) and refit.is_due(50, went_live)


def test_a_refused_one_is_tried_once_more_at_once() -> None:
    refused = refit.Earlier(2, 100, is_refused=True)
    assert refit.is_due(0, [refused])
    assert refit.is_due(0, [refused, refit.Earlier(1, 60, is_refused=False)])
    assert not refit.is_due(49, [refused, refit.Earlier(1, 100, is_refused=True)])


def test_it_starts_from_the_base_whatever_the_policy_was(make_trainer: Trained, make_samples: Samples) -> None:
    own = [replace(s, demonstration_ids=RIGHT, right_kind=RightKind.DEMONSTRATION) for s in make_samples(1)]
    good, anchors = old(make_samples(6)), [Text(s.prompt_ids, s.completion_ids) for s in make_samples(3)]
    found = []
    for is_other in (False, True):
        trainer = make_trainer(**OFF)
        if is_other:
            perturb(trainer.policy)
        texts = [Text(each.prompt_ids, each.completion_ids) for each in good]
        before = sum(float(each.sum()) for each in trainer.policy.logprobs(texts))
        result = trainer.step(own, anchors, good=good, is_refit=True)
        after = sum(float(each.sum()) for each in trainer.policy.logprobs(texts))
        assert result.is_update and result.trained == (own[0].interaction_id,)
        assert result.metrics["refit/n_rows"] == 7.0, "the earlier ones and the step's own"
        assert is_other or after > before
        found.append(trainer.policy.copy_adapter())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_without_a_good_reply_nothing_changes(make_trainer: Trained, make_samples: Samples) -> None:
    trainer = make_trainer(**OFF)
    perturb(trainer.policy)
    before = trainer.policy.copy_adapter()
    result = trainer.step(make_samples(2, hints=False, reward=-1.0), is_refit=True)
    assert not result.is_update and result.trained == () and len(result.idle) == 2
    assert result.reason == "no row had anything to teach"
    assert all(torch.equal(before[name], each) for name, each in trainer.policy.copy_adapter().items())


@pytest.mark.parametrize("fails", ["it diverges", "it is interrupted"])
def test_one_that_fails_leaves_nothing_of_it(
    make_trainer: Trained, make_samples: Samples, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    trainer = make_trainer(**OFF | {"rl_weight": 1.0})
    trainer.step(make_samples(4))
    before, moments = trainer.policy.copy_adapter(), trainer.tensors()
    raised: list[BaseException] = [NotFinite("not finite")] if fails == "it diverges" else [KeyboardInterrupt()]
    clip = Trainer._clip

    def fail_later(self: Trainer) -> float:
        if self.optimizer.state and raised:
            raise raised.pop()
        return clip(self)

    monkeypatch.setattr(Trainer, "_clip", fail_later)
    expected = pytest.raises(LearnerError, match="starting again from the base failed: not finite")
    with expected if fails == "it diverges" else pytest.raises(KeyboardInterrupt):
        trainer.step(make_samples(4), good=old(make_samples(4)), is_refit=True)
    assert not raised
    after = trainer.policy.copy_adapter()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name: t.tolist() for name, t in moments.items()} == {n: t.tolist() for n, t in trainer.tensors().items()}


def test_the_user_cap_counts_its_rows(make_trainer: Trained, make_samples: Samples) -> None:
    caps = {"user_cap": 0.25, "session_cap": 1.0, "new_users_cap": 1.0}
    trainer = make_trainer(**OFF | caps)
    good = [replace(each, user=f"user {min(i, 3)}") for i, each in enumerate(old(make_samples(12)))]
    rows, _, _ = refit._rows(trainer, Work([], good=good))
    weights = [(row.earlier.user, row.weight * row.n_tokens) for row in rows]  # type: ignore[attr-defined]
    heaviest = sum(weight for user, weight in weights if user == "user 3") / sum(weight for _, weight in weights)
    assert heaviest == pytest.approx(0.25, abs=0.03)


def test_the_learner_refits_in_time_and_the_version_can_be_made_again(
    journal: Journal, tmp_path: Path, make_trainer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "MIN_ROWS", 6)
    monkeypatch.setattr(refit, "GROWTH", 1.0)
    settings = SETTINGS | {"sft_weight": 1.0}
    world = World(journal, tmp_path, lambda **_: make_trainer(**settings))
    world.loop = world.learner(world.trainer, sft_weight=1.0)
    is_refit = []
    for number in range(1, 6):
        world.add(4, rating=1.0)
        assert world.loop.run_once()
        is_refit.append(world.store.verify("agent", number).get("is_refit", False))
        world.promote(number, number - 1)
    assert is_refit == [False, True, False, True, False]
    monkeypatch.setattr(reproduce, "trainer_for", lambda *_: make_trainer(**settings))
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    for number in (2, 3):
        made = reproduce.reproduce(Settings(state_dir=world.store.root.parent), journal, "agent", number)
        assert made.is_same and made.digest == world.digest(number, WEIGHTS)


@pytest.mark.parametrize("changes", [{"refit_rows": 0}, {"sft_weight": 0.0}, {"shuffle_rewards": True}])
def test_it_can_be_off_and_the_shuffled_control_has_none(
    journal: Journal, tmp_path: Path, make_trainer: Make, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(refit, "MIN_ROWS", 1)
    world = World(journal, tmp_path, make_trainer)
    world.loop = world.learner(world.trainer, **{"sft_weight": 1.0, **changes})
    world.add(4, rating=1.0)
    assert world.loop.run_once()
    assert "is_refit" not in world.store.verify("agent", 1)
