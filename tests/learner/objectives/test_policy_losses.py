"""GSPO and CISPO: values worked by hand, gradients, and that both train through a whole step."""

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError

from burnish.config import Recipe
from burnish.learner.data.samples import Sample
from burnish.learner.objectives.losses import clipped_policy_loss, sequence_policy_loss, weighted_policy_loss
from burnish.learner.run.trainer import Trainer

OLD = torch.tensor([-1.2, -0.7, -2.1, -0.3, -1.5], dtype=torch.float64)
NEW = torch.tensor([-0.8, -0.8, -2.1, -0.1, -1.5], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5], dtype=torch.float64)
LENGTHS = [3, 2]
CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def test_gspo_has_the_values_worked_by_hand() -> None:
    # mean log-ratios 0.3 / 3 and 0.2 / 2: both s are exp(0.1), inside the clip
    result = sequence_policy_loss(NEW, OLD, ADVANTAGES, LENGTHS, **CLIP)
    assert result.loss.tolist() == pytest.approx([-math.exp(0.1)] * 3 + [0.5 * math.exp(0.1)] * 2)
    assert result.ratio.tolist() == pytest.approx([math.exp(d) for d in (0.4, -0.1, 0.0, 0.2, 0.0)])
    assert not result.is_clipped.any()


def test_gspo_clips_a_whole_reply_or_none_of_it() -> None:
    result = sequence_policy_loss(NEW, OLD, ADVANTAGES, LENGTHS, clip_low=0.2, clip_high=0.05)
    assert result.is_clipped.tolist() == [True, True, True, False, False]
    assert result.loss[:3].tolist() == pytest.approx([-1.05] * 3)
    # token by token, PPO clips only the first
    assert clipped_policy_loss(NEW, OLD, ADVANTAGES, **CLIP).is_clipped.tolist() == [True, False, False, False, False]


def test_gspos_gradient_is_that_of_the_ratio_of_whole_replies() -> None:
    tokens, whole = NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    sequence_policy_loss(tokens, OLD, ADVANTAGES, LENGTHS, **CLIP).loss.sum().backward()
    replies = zip(torch.split(whole - OLD, LENGTHS), torch.split(ADVANTAGES, LENGTHS), strict=True)
    sum(-len(part) * torch.exp(part.mean()) * advantages[0] for part, advantages in replies).backward()  # type: ignore[union-attr]
    assert tokens.grad is not None and whole.grad is not None
    assert torch.allclose(tokens.grad, whole.grad, atol=1e-12)


def test_gspo_of_replies_of_one_token_is_ppo() -> None:
    one = sequence_policy_loss(NEW, OLD, ADVANTAGES, [1] * 5, **CLIP)
    other = clipped_policy_loss(NEW, OLD, ADVANTAGES, **CLIP)
    assert torch.allclose(one.loss, other.loss) and torch.equal(one.is_clipped, other.is_clipped)


def test_cispo_keeps_every_tokens_gradient_and_caps_its_weight() -> None:
    new = (OLD + torch.tensor([0.0, 0.5, 3.0, -0.5, -3.0])).requires_grad_()
    result = weighted_policy_loss(new, OLD, ADVANTAGES)
    result.loss.sum().backward()
    weights = [1.0, math.exp(0.5), 2.0, math.exp(-0.5), math.exp(-3.0)]
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx([-w * a for w, a in zip(weights, ADVANTAGES.tolist(), strict=True)])
    assert result.is_clipped.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("form", ["ppo", "gspo", "cispo"])
def test_each_form_makes_praised_replies_likelier(
    make_trainer: Callable[..., Trainer], make_samples: Callable[..., list[Sample]], form: str
) -> None:
    trainer = make_trainer(policy_loss=form, num_iterations=3, kl_weight=0.0, anchor_weight=0.0, distill_weight=0.0)
    samples = make_samples(6, reward=1.0)
    before = sum(part.sum().item() for part in trainer.policy.logprobs(samples))
    result = trainer.step(samples)
    assert result.is_update
    assert sum(part.sum().item() for part in trainer.policy.logprobs(samples)) > before


@pytest.mark.parametrize("form", ["gspo", "cispo"])
def test_a_form_with_a_ratio_of_its_own_refuses_another_correction(form: str) -> None:
    with pytest.raises(ValidationError, match=f'policy_loss = "{form}" has its own ratio; set correction = "bypass"'):
        Recipe(policy_loss=form, correction="token_tis")  # type: ignore[arg-type]
