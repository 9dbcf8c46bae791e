"""Estimators of KL(π_θ ‖ π_ref) from sampled tokens (Schulman, "Approximating KL divergence"), as functions of arrays.

With x = log π_θ − log π_ref at a token drawn from π_θ. As a *loss* only k2 has the gradient of the reverse KL
(arXiv 2510.01555): k1's has zero mean, k3's is that of another divergence. k3 is the better *monitor*: never negative.
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
