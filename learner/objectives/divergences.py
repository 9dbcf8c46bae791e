"""Divergences between a student's and a teacher's next-token distributions, as functions of arrays.

The last axis is the vocabulary, or the student's top K of it. Values are natural logs. The gradient goes through the
student alone: callers detach the teacher.
"""

import torch
from torch import Tensor


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """x: unbiased, of either sign, high variance. Per token, any shape."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """x²/2: its gradient x·∇log π_θ is, on policy, that of the reverse KL. Per token, any shape."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """e^(−x) + x − 1: unbiased, ≥ 0, low variance. Per token, any shape."""
    x = logprobs - ref_logprobs
    return torch.exp(-x) + x - 1.0


_MAX_LOG_MASS = -1e-7
"""The top K's log mass is held below 0, so that the tail's log stays finite."""


def log_tail(top_logprobs: Tensor) -> Tensor:
    """log(1 − Σ p), the mass outside the top K, as log(−expm1(logsumexp)). [..., K] -> [...]."""
    mass = torch.clamp(torch.logsumexp(top_logprobs, -1), max=_MAX_LOG_MASS)
    return torch.log(-torch.expm1(mass))


def tail_reverse_kl(student_top: Tensor, teacher_top: Tensor) -> Tensor:
    """KL(π_θ ‖ π_T) over the student's top K and one bin for the rest. [..., K] twice, at the same ids -> [...].

    Merging tokens into a bin can only lose divergence (data-processing inequality): the value is at most the exact KL,
    and equal to it at K = V−1. Newer OpenClaw and SDPO use the same support.
    """
    student = torch.cat([student_top, log_tail(student_top).unsqueeze(-1)], -1)
    teacher = torch.cat([teacher_top, log_tail(teacher_top).unsqueeze(-1)], -1)
    return reverse_kl(student, teacher)


def reverse_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(π_θ ‖ π_T) = Σ p_θ (log p_θ − log p_T) over the last axis. [..., V] -> [...]."""
    return (student.exp() * (student - teacher)).sum(-1)


def cap_per_token(divergence: Tensor, cap: float) -> Tensor:
    """Divergences scaled down to at most `cap`. Any shape.

    The factor has no gradient: a far token still learns its direction, while a hard minimum would teach it nothing.
    """
    return divergence * torch.clamp(cap / divergence.detach().clamp(min=1e-12), max=1.0)


def token_distillation(logprobs: Tensor, teacher: Tensor, cap: float) -> Tensor:
    """−A·log π_θ at the sampled tokens, A = log π_T − log π_θ within ±cap and without gradient. Any shape.

    On policy the gradient is, but for the cap, a one-sample estimate of that of KL(π_θ ‖ π_T) at the state: cheap, and
    noisier than `tail_reverse_kl` (OpenClaw-RL's token form).
    """
    advantages = torch.clamp(teacher - logprobs.detach(), -cap, cap)
    return -advantages * logprobs
