"""Golden values that verl's own functions produced, and the properties of the gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.objectives import divergences
from burnish.learner.objectives.losses import (
    clipped_policy_loss,
    decoupled_policy_loss,
    negative_log_likelihood,
    preference_loss,
    preference_weights,
    truncated_weights,
)

OLD = torch.tensor([[-1.20, -0.70, -2.10, -0.05], [-0.30, -1.50, -0.90, 0.0]])
NEW = torch.tensor([[-0.80, -0.75, -2.60, -0.04], [-0.90, -1.10, -0.95, 0.0]])
MASK = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
ADVANTAGES = torch.tensor([[1.0], [-0.5]])
ROLLOUT = torch.tensor([[-1.25, -0.70, -1.20, -0.06], [-0.30, -1.60, -0.90, 0.0]])
REF = torch.tensor([[-1.00, -0.70, -2.00, -0.05], [-0.35, -1.40, -1.00, 0.0]])
CLIP = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


def losses(weights: torch.Tensor | float = 1.0) -> torch.Tensor:
    return clipped_policy_loss(NEW, OLD, ADVANTAGES, **CLIP).loss * weights


def token_mean(values: torch.Tensor, mask: torch.Tensor = MASK) -> torch.Tensor:
    """The mean over the tokens that count, as a step normalises each term."""
    return (values * mask).sum() / mask.sum()


def test_policy_loss_has_the_golden_values() -> None:
    assert token_mean(losses()).item() == pytest.approx(-0.31804043, abs=1e-6)
    weighted = losses(truncated_weights(OLD, ROLLOUT, cap=2.0))
    assert token_mean(weighted).item() == pytest.approx(-0.26623994, abs=1e-6)


def test_monitors_have_the_golden_values() -> None:
    result = clipped_policy_loss(NEW, OLD, ADVANTAGES, **CLIP)
    assert token_mean(result.is_clipped.float()).item() == pytest.approx(0.285714, abs=1e-6)
    assert token_mean(OLD - NEW).item() == pytest.approx(0.055714, abs=1e-6)
    golden = {divergences.k1: -0.09142856, divergences.k2: 0.05697141, divergences.k3: 0.06678156}
    for estimator, value in golden.items():
        assert token_mean(estimator(NEW, REF)).item() == pytest.approx(value, abs=1e-6)


def test_dual_clip_is_exact() -> None:
    loss = clipped_policy_loss(torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([-1.0]), **CLIP).loss
    assert loss.item() == 3.0


def test_log_ratio_is_clamped() -> None:
    result = clipped_policy_loss(torch.tensor([0.0]), torch.tensor([-500.0]), torch.tensor([-1.0]), **CLIP)
    assert math.isfinite(result.ratio.item())
    assert result.loss.item() == 3.0


def test_masked_tokens_have_no_gradient_whatever_they_hold() -> None:
    for poison in (0.0, 1e9, float("nan"), float("inf")):
        logprobs = NEW.clone().requires_grad_()
        advantages = ADVANTAGES.expand(2, 4).clone()
        advantages[1, 3] = poison
        loss = clipped_policy_loss(logprobs, OLD, advantages, **CLIP).loss
        token_mean(loss).backward()
        assert logprobs.grad is not None
        if math.isfinite(poison):
            assert logprobs.grad[1, 3].item() == 0.0
        assert torch.isfinite(logprobs.grad[MASK.bool()]).all()


def test_on_policy_gradient_is_minus_advantage_times_score() -> None:
    logprobs = OLD.clone().requires_grad_()
    loss = clipped_policy_loss(logprobs, OLD, ADVANTAGES, **CLIP).loss
    loss.sum().backward()
    assert torch.allclose(logprobs.grad, -ADVANTAGES.expand(2, 4), atol=1e-7)


def test_gradient_agrees_with_finite_differences() -> None:
    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        per_token = clipped_policy_loss(logprobs, OLD.double(), ADVANTAGES.double(), **CLIP).loss
        return token_mean(per_token, MASK.double())

    assert torch.autograd.gradcheck(loss, (NEW.double().requires_grad_(),), eps=1e-6, atol=1e-6)


def test_k2_is_the_loss_whose_gradient_is_that_of_the_reverse_kl() -> None:
    logits = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    ref = torch.log_softmax(torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(2)), -1)
    student = torch.log_softmax(logits, -1)
    exact = torch.autograd.grad((student.exp() * (student - ref)).sum(), logits, retain_graph=True)[0]
    expected_k2 = torch.autograd.grad((student.exp().detach() * divergences.k2(student, ref)).sum(), logits)[0]
    assert torch.allclose(exact, expected_k2, atol=1e-12)


def test_supervised_loss_is_the_negative_log_likelihood() -> None:
    assert torch.equal(negative_log_likelihood(NEW), -NEW)


def test_decoupled_loss_has_the_golden_values_of_token_tis() -> None:
    loss = decoupled_policy_loss(NEW, OLD, ROLLOUT, ADVANTAGES, **CLIP).loss
    assert token_mean(loss).item() == pytest.approx(-0.26623994, abs=1e-6)


def test_decoupled_from_the_behaviour_itself_is_the_clipped_loss() -> None:
    bypass, decoupled = (
        clipped_policy_loss(NEW, OLD, ADVANTAGES, **CLIP),
        decoupled_policy_loss(NEW, OLD, OLD, ADVANTAGES, **CLIP),
    )
    for one, other in zip(bypass, decoupled, strict=True):
        assert torch.equal(one, other)


def test_decoupled_gradient_agrees_with_finite_differences() -> None:
    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        fixed = (OLD.double(), ROLLOUT.double(), ADVANTAGES.double())
        return token_mean(decoupled_policy_loss(logprobs, *fixed, **CLIP).loss, MASK.double())

    assert torch.autograd.gradcheck(loss, (NEW.double().requires_grad_(),), eps=1e-6, atol=1e-6)


def test_preference_loss_has_values_worked_by_hand() -> None:
    margins = torch.tensor([0.0, 10.0, -10.0], dtype=torch.float64)
    hand = [math.log(2.0), math.log(1.0 + math.exp(-1.0)), math.log(1.0 + math.exp(1.0))]
    assert preference_loss(margins, 0.1).tolist() == pytest.approx(hand, abs=1e-12)
    weights = [0.05, 0.1 / (1.0 + math.exp(1.0)), 0.1 / (1.0 + math.exp(-1.0))]
    assert preference_weights(margins, 0.1).tolist() == pytest.approx(weights, abs=1e-12)


@given(st.floats(-50.0, 50.0), st.floats(0.01, 2.0))
def test_preference_weights_are_the_gradient_of_the_preference_loss(margin: float, beta: float) -> None:
    margins = torch.tensor([margin], dtype=torch.float64, requires_grad=True)
    preference_loss(margins, beta).sum().backward()
    assert margins.grad is not None
    assert torch.allclose(-margins.grad, preference_weights(margins.detach(), beta), atol=1e-12)
    assert 0.0 <= -margins.grad.item() <= beta
    assert torch.autograd.gradcheck(lambda x: preference_loss(x, beta), (margins,), eps=1e-6, atol=1e-6)
