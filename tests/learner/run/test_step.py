"""The step: what it learns, what it must not touch, and that the same input gives the same bits."""

from array import array
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import perturb

from burnish.learner.data.rows import Row, Text, TokenBatch
from burnish.learner.data.samples import Sample
from burnish.learner.objectives.distillation import Distillation
from burnish.learner.objectives.group_gradient import GroupGradient
from burnish.learner.objectives.objective import Objective
from burnish.learner.objectives.registry import REGISTRY
from burnish.learner.run.trainer import NotFinite, Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
RL_ONLY = {"distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}
BANDIT = {"learning_rate": 3e-2, "keep_duplicates": True, "outlier_z": 0.0}
ANCHORS = [Text([5, 6, 7], [20, 21, 0]), Text([9], [30, 0])]


def gradients(trainer: Trainer, samples: list[Sample], anchors: list[Text] | None = None) -> dict[str, torch.Tensor]:
    """The gradient that a step would apply; nothing is applied."""
    caught: dict[str, torch.Tensor] = {}

    def catch() -> None:
        caught.update({name: tensor.grad.clone() for name, tensor in trainer.policy.parameters().items()})

    trainer.optimizer.step = catch  # type: ignore[method-assign]
    trainer.step(samples, anchors or [])
    return caught


def mean_logprob(trainer: Trainer, samples: list[Sample]) -> float:
    return float(torch.cat(trainer.policy.logprobs(samples)).mean())


def test_a_step_uses_every_term_and_reports(make_trainer: Make, make_samples: Samples) -> None:
    trainer, before = make_trainer(), make_trainer().policy.copy_adapter()
    result = trainer.step(make_samples(8), ANCHORS)
    assert result.is_update
    assert len(result.trained) == 8 and result.idle == ()
    terms = {f"loss/{objective.name}" for objective, _ in trainer.objectives if objective.name != GroupGradient.name}
    assert terms <= set(result.metrics) and "loss/group_gradient" not in result.metrics  # there is no group
    metrics = result.metrics
    assert metrics["policy_gradient/ratio"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["policy_gradient/clip_fraction"] == 0.0
    assert metrics["policy_gradient/k3_behaviour"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["kl_to_base/k3"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["reward_mean"] == 0.0
    assert 0.0 < metrics["entropy"] < 6.0
    assert metrics["n_hinted"] == 3.0 and metrics["grad_norm"] > 0.0 and metrics["seconds"] > 0.0
    assert metrics["n_tokens"] == sum(sample.n_tokens for sample in make_samples(8)) + 5
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.policy.parameters().items())
    assert all(tensor.grad is None for tensor in trainer.policy.parameters().values())


def test_the_same_rows_and_seed_give_the_same_bits(make_trainer: Make, make_samples: Samples) -> None:
    one, two = make_trainer(shuffle_rewards=True), make_trainer(shuffle_rewards=True)
    for trainer in (one, two):
        trainer.step(make_samples(8), ANCHORS)
        trainer.step(make_samples(5), ANCHORS)
    assert all(torch.equal(tensor, two.policy.parameters()[name]) for name, tensor in one.policy.parameters().items())
    assert one.state() == two.state()


@pytest.mark.parametrize("micro_tokens", [1, 60, 150])
def test_micro_batches_do_not_change_the_gradient(make_trainer: Make, make_samples: Samples, micro_tokens: int) -> None:
    whole = gradients(make_trainer(10**6), make_samples(8), ANCHORS)
    parts = gradients(make_trainer(micro_tokens), make_samples(8), ANCHORS)
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], atol=1e-6), name


@pytest.mark.parametrize(("reward", "rises"), [(1.0, True), (-1.0, False)])
def test_the_rewards_sign_decides_the_direction(
    make_trainer: Make, make_samples: Samples, reward: float, rises: bool
) -> None:
    trainer, samples = make_trainer(**RL_ONLY, learning_rate=1e-3), make_samples(6, reward=reward)
    before = mean_logprob(trainer, samples)
    trainer.step(samples)
    assert (mean_logprob(trainer, samples) > before) is rises


def test_nothing_to_learn_leaves_everything_as_it_was(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer()
    trainer.step(make_samples(4), ANCHORS)  # moments that would move the weights even at zero gradient
    before, moments = trainer.policy.copy_adapter(), trainer.tensors()
    neutral = [replace(sample, reward=0.0) for sample in make_samples(4, hints=False)]
    result = trainer.step(neutral, ANCHORS)
    assert not result.is_update
    assert result.trained == () and len(result.idle) == 4
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.parameters().items())
    assert all(torch.equal(moments[name], tensor) for name, tensor in trainer.tensors().items())


def test_expected_rewards_are_idle_and_counted(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(**RL_ONLY, min_advantage=0.05)
    expect_praise(trainer)
    result = trainer.step(make_samples(4, hints=False, reward=1.0))
    assert not result.is_update
    assert result.metrics["policy_gradient/n_weak"] == 4.0
    assert len(result.idle) == 4


def test_for_a_liked_agent_successes_count_beside_failures(make_trainer: Make, make_samples: Samples) -> None:
    samples = [replace(each, reward=-1.0 if i == 0 else 1.0) for i, each in enumerate(make_samples(8, hints=False))]
    alone, beside = make_trainer(**RL_ONLY, min_advantage=0.05), make_trainer(**RL_ONLY)
    for trainer in (alone, beside):
        expect_praise(trainer)
    assert alone.step(samples).trained == ("chatcmpl-0",)
    kept = beside.step(samples)
    assert len(kept.trained) == 8 and kept.metrics["policy_gradient/n_weak"] == 0.0
    assert mean_logprob(beside, samples[1:]) > mean_logprob(alone, samples[1:])


def expect_praise(trainer: Trainer) -> None:
    """Give the baseline a hundred good replies and one bad one. A good one then has an advantage of 0.01."""
    state = trainer.state()
    state["objectives"]["policy_gradient"]["evidence"] = {"judge": [100.0, 1.0]}
    trainer.restore(state)


def test_distillation_does_not_affect_rows_without_a_hint(make_trainer: Make, make_samples: Samples) -> None:
    plain = make_samples(8, hints=False)
    alone = gradients(make_trainer(**RL_ONLY), plain)
    with_term = gradients(make_trainer(**RL_ONLY | {"distill_weight": 1.0}), plain)
    assert all(torch.equal(gradient, with_term[name]) for name, gradient in alone.items())


def test_in_a_mixed_batch_distillation_affects_only_hinted_rows(make_trainer: Make, make_samples: Samples) -> None:
    trainer, objective = make_trainer(), Distillation(top_k=20, check_hints=False)
    rows = [Row.of(sample) for sample in make_samples(6)]
    objective.stamp(rows, trainer.policy)
    logprobs = trainer.policy.distributions(rows).detach().requires_grad_()
    objective.term(TokenBatch(rows, logprobs)).total.backward()
    assert logprobs.grad is not None
    for row, gradient in zip(rows, torch.split(logprobs.grad, [row.n_tokens for row in rows]), strict=True):
        assert bool(gradient.any()) is (row.sample is not None and row.sample.hint is not None)


def test_distillation_draws_the_student_to_its_hinted_self(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(rl_weight=0.0, kl_weight=0.0, anchor_weight=0.0)
    samples = make_samples(6)
    divergences = [trainer.step(samples).metrics["distillation/divergence"] for _ in range(8)]
    assert divergences[-1] < 0.7 * divergences[0]


def test_a_greedy_row_is_distilled_and_never_gets_a_policy_gradient(make_trainer: Make, make_samples: Samples) -> None:
    samples = [replace(sample, has_ratio=False) for sample in make_samples(6)]
    result = make_trainer().step(samples)
    assert result.trained == tuple(sample.interaction_id for sample in samples if sample.hint is not None)
    assert "loss/policy_gradient" not in result.metrics and "loss/kl_to_base" not in result.metrics
    assert result.metrics["loss/distillation"] > 0.0


def test_anchors_alone_make_no_version_and_at_the_base_they_are_silent(
    make_trainer: Make, make_samples: Samples
) -> None:
    trainer, without = make_trainer(anchor_weight=5.0), make_trainer(anchor_weight=0.0)
    assert not trainer.step([], ANCHORS).is_update
    assert trainer.step(make_samples(4), ANCHORS).metrics["loss/anchor"] == pytest.approx(0.0, abs=1e-6)
    without.step(make_samples(4))
    for name, tensor in trainer.policy.parameters().items():
        assert torch.allclose(tensor, without.policy.parameters()[name], atol=1e-5)


def test_anchors_bring_the_policy_back_to_the_bases_predictions(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(anchor_weight=100.0, learning_rate=3e-3)
    perturb(trainer.policy)
    losses = [trainer.step(make_samples(4), ANCHORS).metrics["loss/anchor"] for _ in range(12)]
    assert losses[0] > 0.0 and losses[-1] < 0.5 * losses[0]


def test_a_row_of_another_policy_is_vetoed(make_trainer: Make, make_samples: Samples) -> None:
    samples = make_samples(4, hints=False)
    alien = [replace(sample, behaviour_logprobs=array("f", [-30.0] * sample.n_tokens)) for sample in samples]
    trainer = make_trainer(**RL_ONLY)
    before = trainer.policy.copy_adapter()
    result = trainer.step(alien)
    assert result.metrics["policy_gradient/veto_fraction"] == pytest.approx(1.0)
    assert result.metrics["grad_norm"] == 0.0
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.parameters().items())


def test_reset_is_a_fresh_start(make_trainer: Make, make_samples: Samples) -> None:
    trainer, fresh = make_trainer(), make_trainer()
    trainer.step(make_samples(8))
    trainer.reset()
    for each in (trainer, fresh):
        each.step(make_samples(6))
    assert all(torch.equal(t, fresh.policy.parameters()[name]) for name, t in trainer.policy.parameters().items())


def test_a_bandit_finds_its_best_arm(make_trainer: Make, make_samples: Samples) -> None:
    """One prompt, one token to choose: the rewarded one becomes likely."""
    trainer, [template] = make_trainer(**RL_ONLY, **BANDIT), make_samples(1, hints=False)
    prompt, generator = list(template.prompt_ids), torch.Generator().manual_seed(0)

    def distribution() -> torch.Tensor:
        with torch.no_grad():
            return trainer.policy.distributions([Text(prompt, [0])])[0]

    best = distribution().topk(6).indices.tolist()[-1]
    before = distribution()[best].exp().item()
    for _ in range(40):
        found = distribution()
        arms = torch.multinomial(found.exp(), 16, replacement=True, generator=generator).tolist()
        trainer.step(
            [
                replace(
                    template,
                    completion_ids=array("i", [arm]),
                    behaviour_logprobs=array("f", [found[arm].item()]),
                    reward=1.0 if arm == best else -1.0,
                )
                for arm in arms
            ]
        )
    assert distribution()[best].exp().item() > max(0.9, before)


def test_several_passes_take_as_many_steps_on_the_same_rows(make_trainer: Make, make_samples: Samples) -> None:
    samples = make_samples(6)
    once, thrice = make_trainer(**RL_ONLY), make_trainer(**RL_ONLY, num_iterations=3)
    single, result = once.step(samples), thrice.step(samples)
    state = next(iter(thrice.optimizer.state.values()))
    assert result.is_update and state["step"].item() == 3
    # the metrics are the first pass's, as if it were the only one, and the last pass's distance
    assert single.metrics["loss"] == result.metrics["loss"] and "last/loss" not in single.metrics
    assert result.metrics["last/loss"] < result.metrics["loss"]
    assert result.metrics["last/policy_gradient/ratio"] != pytest.approx(1.0, abs=1e-4)
    again = make_trainer(**RL_ONLY, num_iterations=3)
    again.step(samples)
    assert all(torch.equal(t, again.policy.parameters()[name]) for name, t in thrice.policy.parameters().items())


@pytest.mark.parametrize("error", [NotFinite("the loss is nan"), MemoryError()], ids=lambda error: type(error).__name__)
def test_a_later_pass_that_fails_undoes_the_earlier_ones(
    make_trainer: Make, make_samples: Samples, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trainer = make_trainer(**RL_ONLY, num_iterations=2)
    trainer.step(make_samples(6))
    before, moments = trainer.policy.copy_adapter(), trainer.tensors()
    whole, n = trainer._accumulate, 0

    def fails(*given: Any) -> dict[str, float]:
        nonlocal n
        n += 1
        if n == 2:
            raise error
        return whole(*given)

    monkeypatch.setattr(trainer, "_accumulate", fails)
    with nullcontext() if isinstance(error, NotFinite) else pytest.raises(MemoryError):
        assert trainer.step(make_samples(6)).reason == "the loss is nan"
    assert n == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.policy.parameters().items())
    assert all(torch.equal(tensor, moments[name]) for name, tensor in trainer.tensors().items())


def test_every_objective_is_registered_under_its_own_name(make_trainer: Make) -> None:
    built: list[Objective] = [objective for objective, _ in make_trainer(sft_weight=1.0, dpo_weight=1.0).objectives]
    assert [objective.name for objective in built] == list(REGISTRY)
    assert len({objective.stream for objective in built}) == len(built)
    with pytest.raises(ValueError, match="has no state to restore"):
        built[1].restore({"odd": 1})
