"""CISPO: the ratio is a weight without gradient, so that no token loses its gradient to a clip (MiniMax-M1, arXiv 2506.13585)."""

from torch import Tensor

from learner.losses import ClippedLoss, ratio, truncated_weights


def weighted_policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, cap: float = 2.0) -> ClippedLoss:
    """ℓ = −sg(min(π_θ/μ, cap))·A·log π_θ per token; all tensors broadcast to one shape."""
    rho = ratio(logprobs, old_logprobs).detach()
    return ClippedLoss(-truncated_weights(logprobs, old_logprobs, cap) * advantages * logprobs, rho, rho > cap)
