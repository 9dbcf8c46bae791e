"""GSPO: one ratio for a whole reply, so that its tokens are clipped together or not at all (arXiv 2507.18071)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from learner.losses import MAX_LOG_RATIO, ClippedLoss, ratio


def sequence_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Sequence[int], *, clip_low: float, clip_high: float
) -> ClippedLoss:
    """ℓ = −min(sA, clip(s, 1−clip_low, 1+clip_high)·A) per token, s = exp(mean_t log π_θ/μ) of the token's own reply.

    All tensors are [N], the tokens of replies of `lengths` one behind the other. It is the paper's token form, s·π_θ/sg(π_θ): a
    token's gradient is that of its own log-prob, times s. `ratio` is the token's own, π_θ/μ, for the veto.
    """
    log_ratio = (logprobs - old_logprobs).detach()
    means = torch.cat([part.mean().expand(len(part)) for part in torch.split(log_ratio, list(lengths))])
    s = torch.exp(torch.clamp(means, -MAX_LOG_RATIO, MAX_LOG_RATIO) + logprobs - logprobs.detach())
    plain = -s * advantages
    bounded = -torch.clamp(s, 1.0 - clip_low, 1.0 + clip_high) * advantages
    return ClippedLoss(torch.maximum(plain, bounded), ratio(logprobs, old_logprobs).detach(), bounded > plain)
