"""Settings that choose a form of an objective: each trains through a whole step, and works as documented."""

from collections.abc import Callable

import pytest
import torch

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.data.samples import Sample
from burnish.learner.objectives.distillation import TokenDistillation
from burnish.learner.objectives.objective import row_weights
from burnish.learner.objectives.policy_gradient import PolicyGradient
from burnish.learner.objectives.registry import build
from burnish.learner.run.trainer import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]


def test_token_distillation_draws_the_student_to_its_hinted_self(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(rl_weight=0.0, kl_weight=0.0, anchor_weight=0.0, distill_form="token")
    assert TokenDistillation in {type(objective) for objective, _ in trainer.objectives}
    samples = make_samples(6)
    results = [trainer.step(samples) for _ in range(8)]
    assert results[0].trained == tuple(sample.interaction_id for sample in samples if sample.hint is not None)
    gaps = [abs(result.metrics["distillation/divergence"]) for result in results]
    assert gaps[-1] < 0.7 * gaps[0]


def test_token_distillation_refuses_the_hints_that_its_other_form_refuses(
    make_trainer: Make, make_samples: Samples
) -> None:
    samples = make_samples(6, reward=-1.0)
    refused = [make_trainer(check_hints=True, distill_form=form).step(samples).refusals for form in ("top_k", "token")]
    assert refused[0] == refused[1]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("correction", ["bypass", "token_tis"])
def test_every_estimator_and_correction_takes_a_step(
    make_trainer: Make, make_samples: Samples, estimator: str, correction: str
) -> None:
    trainer = make_trainer(advantage=estimator, groups="session", correction=correction)
    result = trainer.step(make_samples(6))
    assert result.is_update and result.metrics["grad_norm"] > 0.0


def test_advantages_are_divided_by_their_deviation_on_request(make_trainer: Make, make_samples: Samples) -> None:
    samples, found = make_samples(6, hints=False), []
    for floor in (0.0, 0.25):
        trainer, rows = make_trainer(scale_floor=floor), [Row.of(sample) for sample in samples]
        trainer.objectives[0].objective.stamp(rows, trainer.policy)
        trained = [row for row in rows if "advantages" in row.streams]
        advantages = torch.tensor([row.streams["advantages"][0].item() for row in trained])
        found.append((advantages, torch.tensor([float(row.n_tokens) for row in trained])))
    (plain, n_tokens), (scaled, _) = found
    share = n_tokens / n_tokens.sum()
    deviation = ((share * plain**2).sum() - (share * plain).sum() ** 2).sqrt().item()
    assert scaled.tolist() == pytest.approx((plain / max(deviation, 0.25)).tolist(), rel=1e-4)
    assert not torch.equal(plain, scaled)


def test_on_policy_both_corrections_have_one_gradient(make_trainer: Make, make_samples: Samples) -> None:
    samples, weights = make_samples(6, hints=False), []
    for correction in ("bypass", "token_tis"):
        trainer = make_trainer(kl_weight=0.0, correction=correction)
        rows = [Row.of(sample) for sample in samples]
        objective = build(trainer.recipe)[0].objective
        assert isinstance(objective, PolicyGradient)
        objective.stamp(rows, trainer.policy)
        objective.term(TokenBatch(rows, trainer.policy.distributions(rows))).total.backward()  # type: ignore[no-untyped-call]
        weights.append({name: tensor.grad for name, tensor in trainer.policy.parameters().items()})
    for name, gradient in weights[0].items():
        assert gradient is not None and torch.allclose(gradient, weights[1][name], atol=1e-4), name


def test_a_rows_weight_scales_its_losses_and_no_others(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer()
    rows = [Row.of(sample) for sample in make_samples(4)]
    for objective, _ in build(trainer.recipe):
        objective.stamp(rows, trainer.policy)
        if not any(objective.stream in row.streams for row in rows) or objective.name == "kl_to_base":
            continue
        batch = TokenBatch(rows, trainer.policy.distributions(rows).detach())
        whole = objective.term(batch).total.item()
        alone = [
            objective.term(TokenBatch([row], batch.logprobs[place])).total
            for row, place in zip(rows, places(rows), strict=True)
            if objective.stream in row.streams
        ]
        assert sum(part.item() for part in alone) == pytest.approx(whole, abs=1e-4)
        first = next(row for row in rows if objective.stream in row.streams)
        first.weight = 0.25
        assert row_weights(batch, objective.stream)[0].item() == 0.25
        assert objective.term(batch).total.item() == pytest.approx(whole - 0.75 * alone[0].item(), abs=1e-4)
        first.weight = 1.0


def places(rows: list[Row]) -> list[slice]:
    ends = torch.tensor([row.n_tokens for row in rows]).cumsum(0).tolist()
    return [slice(end - row.n_tokens, end) for row, end in zip(rows, ends, strict=True)]
