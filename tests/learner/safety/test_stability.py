"""Refused steps leave everything unchanged and give the reason. Caps weigh rows within a step."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from burnish.learner.data.rows import TokenBatch
from burnish.learner.data.samples import Sample, SkipReason
from burnish.learner.objectives.objective import Term
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.work import StepResult

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
QUIET = {"grad_norm": 1e-6}
RL_ONLY = {"distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}


def remembering(trainer: Trainer, *steps: dict[str, float]) -> Trainer:
    trainer.monitor_state.restore({"first": list(steps), "recent": list(steps)})
    return trainer


def is_untouched(trainer: Trainer, samples: list[Sample]) -> StepResult:
    """Take a step that must be refused. Everything but the monitors' memory has to be unchanged."""
    before, moments, state = trainer.policy.copy_adapter(), trainer.tensors(), trainer.state()
    result = trainer.step(samples)
    assert not result.is_update and result.trained == () and result.reason is not None
    assert {**trainer.state(), "health": None} == {**state, "health": None}
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.parameters().items())
    assert all(torch.equal(moments[name], tensor) for name, tensor in trainer.tensors().items())
    assert all(tensor.grad is None for tensor in trainer.policy.parameters().values())
    assert all(math.isfinite(value) for value in result.metrics.values())
    return result


def test_an_outlier_is_skipped_and_remembered(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(shuffle_rewards=True)
    trainer.step(make_samples(4))
    remembering(trainer, *[QUIET] * 64)
    result = is_untouched(trainer, make_samples(4))
    assert result.reason is not None and result.reason.startswith("an outlier: the gradient's norm")
    assert result.metrics["grad_z"] > 6.0 and result.monitors["grad_norm"]["level"] == "yellow"
    assert trainer.monitor_state.state()["recent"][-1]["grad_norm"] == result.metrics["grad_norm"]
    assert trainer.step(make_samples(4)).level == "red"  # twice within the window


def test_outliers_are_ordinary_steps_if_the_check_is_off(make_trainer: Make, make_samples: Samples) -> None:
    trainer = remembering(make_trainer(outlier_z=0.0), *[QUIET] * 20)
    result = trainer.step(make_samples(4))
    assert result.is_update and result.level == "yellow"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_skips_the_step(
    make_trainer: Make, make_samples: Samples, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    trainer = make_trainer(shuffle_rewards=True)
    trainer.step(make_samples(4))
    objective = trainer.objectives[0].objective

    def broken(batch: TokenBatch) -> Term:
        index = batch.where(objective.stream)
        return Term(batch.sampled[index].sum() * value, len(index))

    monkeypatch.setattr(objective, "term", broken)
    result = is_untouched(trainer, make_samples(4))
    assert result.reason is not None and "the weights are unchanged" in result.reason
    monkeypatch.undo()
    assert trainer.step(make_samples(4)).is_update


def test_yellow_reduces_the_learning_rate_and_green_restores_it(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(monitors="act", monitor_repetition=(1e-9, 1.0), yellow_factor=0.25)
    remembering(trainer, *[{"repetition": 0.0}] * 5)
    looping = [replace(s, completion_ids=type(s.completion_ids)("i", [9] * s.n_tokens)) for s in make_samples(6)]
    slow = trainer.step(looping)
    assert (slow.level, slow.monitors["repetition"]["level"]) == ("yellow", "yellow")
    assert slow.is_update and slow.metrics["learning_rate"] == pytest.approx(0.25e-2)
    remembering(trainer)
    fast = trainer.step(make_samples(6))
    assert (fast.level, fast.metrics["learning_rate"]) == ("green", 1e-2)


def test_red_takes_no_step_and_names_the_monitor(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(monitors="act", min_entropy=100.0)
    result = is_untouched(trainer, make_samples(6))
    assert result.level == "red" and result.reason is not None and result.reason.startswith("entropy is red: entropy ")
    assert result.monitors["entropy"]["value"] == pytest.approx(result.metrics["entropy"])


def test_watch_records_the_levels_and_changes_no_bit(make_trainer: Make, make_samples: Samples) -> None:
    plain, watched = make_trainer(), make_trainer(min_entropy=100.0)
    assert plain.step(make_samples(6)).level == "green"
    assert watched.step(make_samples(6)).level == "red"
    assert all(torch.equal(t, watched.policy.parameters()[name]) for name, t in plain.policy.parameters().items())


def test_the_monitors_memory_is_in_the_trainers_state(make_trainer: Make, make_samples: Samples) -> None:
    one, two = make_trainer(), make_trainer()
    one.step(make_samples(6))
    two.restore(one.state())
    assert two.monitor_state.state() == one.monitor_state.state() != make_trainer().monitor_state.state()
    one.reset()
    assert one.monitor_state.state() == make_trainer().monitor_state.state()


def of_users(samples: list[Sample], users: list[str]) -> list[Sample]:
    return [replace(s, user=user, session=s.interaction_id) for s, user in zip(samples, users, strict=True)]


def test_a_loud_user_weighs_a_quarter_of_a_step(make_trainer: Make, make_samples: Samples) -> None:
    samples = of_users(make_samples(10, hints=False), ["a"] * 6 + ["b", "c", "d", "e"])
    result = make_trainer(**RL_ONLY).step(samples)
    loud = {sample.interaction_id for sample in samples[:6]}
    weights = {name: result.weights.get(name, 1.0) for name in result.trained}
    sizes = {sample.interaction_id: weights[sample.interaction_id] * sample.n_tokens for sample in samples}
    assert result.weights.keys() >= loud and result.metrics["n_capped"] == len(result.weights)
    assert sum(sizes[name] for name in loud) == pytest.approx(0.25 * sum(sizes.values()), rel=1e-4)


def test_one_user_alone_is_never_capped(make_trainer: Make, make_samples: Samples) -> None:
    capped, free = make_trainer(), make_trainer(user_cap=1.0, session_cap=1.0, new_users_cap=1.0)
    for trainer in (capped, free):
        assert trainer.step(make_samples(8)).weights == {}
    assert all(torch.equal(t, free.policy.parameters()[name]) for name, t in capped.policy.parameters().items())


def test_new_users_together_weigh_half(make_trainer: Make, make_samples: Samples) -> None:
    users = ["a", "b", "c", "d"] + [f"new{i}" for i in range(8)]
    samples = [
        replace(s, n_earlier=100 if len(user) == 1 else 0)
        for s, user in zip(make_samples(12, hints=False), users, strict=True)
    ]
    samples = of_users(samples, users)
    result = make_trainer(**RL_ONLY, session_cap=1.0).step(samples)
    kept = {s.interaction_id: s.n_tokens * result.weights.get(s.interaction_id, 1.0) for s in samples}
    new = sum(kept[s.interaction_id] for s in samples[4:])
    assert new <= 0.5 * sum(kept.values()) + 1e-3


def test_a_flood_is_thinned_out_with_its_code(make_trainer: Make, make_samples: Samples) -> None:
    samples = of_users(make_samples(24, hints=False), ["a"] * 21 + ["b", "c", "d"])
    samples[21:] = [
        replace(s, completion_ids=s.completion_ids[:2], behaviour_logprobs=s.behaviour_logprobs[:2])
        for s in samples[21:]
    ]
    result = make_trainer(**RL_ONLY).step(samples)
    assert result.is_update
    assert set(result.dropped.values()) == {SkipReason.CAPPED} and set(result.dropped) <= {
        s.interaction_id for s in samples[:21]
    }
    assert samples[0].interaction_id in result.trained
    assert not set(result.dropped) & {*result.trained, *result.idle}
