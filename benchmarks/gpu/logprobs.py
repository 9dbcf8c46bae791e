"""Our log-probs on this device, packed and with shared beginnings, beside a plain forward pass and beside fp32.

The adapter is not fresh. fp32 is the same weights, so `plain_vs_fp32` is what bf16 itself costs.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu import rows as agents
from benchmarks.gpu import shapes
from benchmarks.gpu.ours import policy_of, texts
from benchmarks.gpu.plain import logprobs, padded
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import Figures

SCALE = 0.02


def measure(shape: Shape, device: str) -> Figures:
    """Mean and largest absolute differences, in nats a token."""
    base = shapes.build(shape, device)
    policy = policy_of(base, device)
    rows = agents.agent_rows(shape)
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(torch.randn_like(tensor) * SCALE)
    moved = policy.logprobs(texts(rows))
    plain = _alone(policy.model, rows, device)
    exact = _alone(policy.model.float(), rows, device)
    pairs = {"ours_vs_fp32": (moved, exact), "plain_vs_fp32": (plain, exact), "ours_vs_plain": (moved, plain)}
    found: Figures = {"n_completion_tokens": float(sum(len(row["completion_ids"]) for row in rows))}
    for name, (one, other) in pairs.items():
        gaps = torch.cat([(a - b).abs() for a, b in zip(one, other, strict=True)])
        found |= {f"{name}_mean": float(gaps.mean()), f"{name}_max": float(gaps.max())}
    return found


@torch.no_grad()
def _alone(model: Any, rows: Sequence[dict[str, Any]], device: str) -> list[Tensor]:
    """Each row's log-probs from a pass of its own, on the CPU."""
    return [logprobs(model, padded([row], device))[0].float().cpu() for row in rows]
