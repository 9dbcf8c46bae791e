"""GSPO: one ratio for a whole reply, so that its tokens are clipped together or not at all (arXiv 2507.18071)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""exp(20) is finite in every float type. A larger log-ratio is noise, not evidence."""


class ClippedLoss(NamedTuple):
    """Per-token losses, their ratios, and where the clip decided. All of one shape."""

    loss: Tensor
    ratio: Tensor
    is_clipped: Tensor


def ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """ρ = π_θ/μ per token, with the log-ratio clamped to ±20. Any shape."""
    return torch.exp(torch.clamp(logprobs - old_logprobs, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> ClippedLoss:
    """PPO's clipped surrogate with separate bounds, per token. All tensors broadcast to one shape.

    ℓ = −min(ρA, clip(ρ, 1−clip_low, 1+clip_high)·A), and for A < 0 at most dual_clip·|A| (arXiv 1912.09729), so that
    one token that became much likelier cannot dominate. With μ from the engine in `old_logprobs` this is the bypass
    mode of decoupled PPO: the clip acts on staleness and engine mismatch at once.
    """
    rho = ratio(logprobs, old_logprobs)
    plain = -rho * advantages
    bounded = -torch.clamp(rho, 1.0 - clip_low, 1.0 + clip_high) * advantages
    loss = torch.maximum(plain, bounded)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return ClippedLoss(loss, rho, bounded > plain)


def decoupled_policy_loss(
    logprobs: Tensor,
    prox_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    cap: float = 2.0,
) -> ClippedLoss:
    """The clipped surrogate on r = π_θ/π_prox, weighted by w̄ = min(π_prox/μ, cap) without gradient (token TIS, arXiv
    2505.24298).

    The clip limits how far this update goes, and the weight corrects for the policy that drew the tokens. With π_prox =
    μ it is `clipped_policy_loss` bit for bit. `ratio` is ρ = π_θ/μ, for the veto. All tensors broadcast to one shape.
    """
    result = clipped_policy_loss(
        logprobs, prox_logprobs, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    weighted = truncated_weights(prox_logprobs, behaviour_logprobs, cap) * result.loss
    return ClippedLoss(weighted, ratio(logprobs, behaviour_logprobs), result.is_clipped)


def truncated_weights(prox_logprobs: Tensor, behaviour_logprobs: Tensor, cap: float = 2.0) -> Tensor:
    """Token-level truncated importance weights w̄ = min(π_prox/μ, cap), without gradient. Any shape."""
    return torch.clamp(ratio(prox_logprobs, behaviour_logprobs), max=cap).detach()


def negative_log_likelihood(logprobs: Tensor) -> Tensor:
    """−log π_θ per token: supervised learning of given tokens. Any shape."""
    return -logprobs


def preference_loss(margins: Tensor, beta: float) -> Tensor:
    """DPO's −log σ(β·margin) per pair (arXiv 2305.18290), any shape.

    The margin is (log π_θ − log π_ref) of the preferred reply minus that of the other, each summed over its tokens, in
    nats.
    """
    return -torch.nn.functional.logsigmoid(beta * margins)


def preference_weights(margins: Tensor, beta: float) -> Tensor:
    """β·σ(−β·margin): how strongly DPO's gradient raises the preferred reply's log-prob and lowers the other's. Any
    shape."""
    return beta * torch.sigmoid(-beta * margins)


def weighted_policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, cap: float = 2.0) -> ClippedLoss:
    """ℓ = −sg(min(π_θ/μ, cap))·A·log π_θ per token. All tensors broadcast to one shape."""
    rho = ratio(logprobs, old_logprobs).detach()
    return ClippedLoss(-truncated_weights(logprobs, old_logprobs, cap) * advantages * logprobs, rho, rho > cap)


def sequence_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    lengths: Sequence[int],
    *,
    clip_low: float,
    clip_high: float,
) -> ClippedLoss:
    """ℓ = −min(sA, clip(s, 1−clip_low, 1+clip_high)·A) per token, s = exp(mean_t log π_θ/μ) of the token's own reply.

    All tensors are [N], the tokens of replies of `lengths`, concatenated. It is the paper's token form, s·π_θ/sg(π_θ):
    a token's gradient is that of its own log-prob, times s. `ratio` is the token's own, π_θ/μ, for the veto.
    """
    log_ratio = (logprobs - old_logprobs).detach()
    means = torch.cat([part.mean().expand(len(part)) for part in torch.split(log_ratio, list(lengths))])
    s = torch.exp(torch.clamp(means, -MAX_LOG_RATIO, MAX_LOG_RATIO) + logprobs - logprobs.detach())
    plain = -s * advantages
    bounded = -torch.clamp(s, 1.0 - clip_low, 1.0 + clip_high) * advantages
    return ClippedLoss(torch.maximum(plain, bounded), ratio(logprobs, old_logprobs).detach(), bounded > plain)
