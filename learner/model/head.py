"""Head: log-probs from hidden states, a tile of tokens × vocabulary at a time. No [T, V] tensor is ever made.

The head is frozen, so the gradient needs only the expected row of the vocabulary, E_p[w] = Σ_v p_v w_v: the gradient of
log p_y by the hidden state is w_y − E_p[w]. One pass over the tiles with an online softmax gives log Z and E_p[w]
together. Backward reads only the rows of the requested ids. The entropy needs no further pass: H = log Z − h·E_p[w].
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CPU_TILE, _GPU_TILE = (128, 8192), (2048, 16384)
"""Tokens × vocabulary of one tile: 4 MiB of logits on a CPU stay in its cache, 128 MiB on a GPU keep it busy."""
_N_EXACT = 32
"""Tokens at each place whose logits are exact although the weights are bf16."""
_GATHERED = 2**22
"""Most numbers of gathered head rows in memory at once."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of one pass over the vocabulary: log Z [N], and on request E_p[w] [N, H] and the top ids [N, K]."""

    log_z: Tensor
    expected: Tensor | None
    top: Tensor | None

    def at(self, index: Tensor) -> "Scan":
        """The same at the places `index` [n]."""
        expected, top = (None if found is None else found[index] for found in (self.expected, self.top))
        return Scan(self.log_z[index], expected, top)


@torch.no_grad()
def scan(hidden: Tensor, weight: Tensor, *, expected: bool, top: int = 0) -> Scan:
    """One pass of `hidden` [N, H] over the head's `weight` [V, H]. All results are in float32 or better."""
    n_tokens, n_vocab = (_GPU_TILE if hidden.is_cuda else _CPU_TILE) if weight.dtype != torch.float64 else (5, 7)
    parts = [_scan_tokens(h, weight, n_vocab, expected=expected, top=top) for h in torch.split(hidden, n_tokens)]
    return Scan(
        torch.cat([part.log_z for part in parts]),
        torch.cat([part.expected for part in parts if part.expected is not None]) if expected else None,
        torch.cat([part.top for part in parts if part.top is not None]) if top else None,
    )


def _scan_tokens(hidden: Tensor, weight: Tensor, n_vocab: int, *, expected: bool, top: int) -> Scan:
    is_wide = weight.dtype in (torch.float32, torch.float64)
    largest = wide(hidden).new_full((len(hidden), 1), -torch.inf)
    total, mean = torch.zeros_like(largest), wide(torch.zeros_like(hidden)) if expected else None
    best: tuple[Tensor, Tensor] | None = None
    n_best = top if is_wide else max(top, min(_N_EXACT, len(weight)))
    for start in range(0, len(weight), n_vocab):
        rows = weight[start : start + n_vocab]
        logits = wide(hidden @ rows.T)
        if n_best:
            best = _merge(best, logits, start, n_best)
        previous, largest = largest, torch.maximum(largest, logits.amax(-1, keepdim=True))
        faded = torch.exp(previous - largest)
        weights = logits.sub_(largest).exp_()
        total = total * faded + weights.sum(-1, keepdim=True)
        if mean is not None:
            mean.mul_(faded)
            mean.addmm_(weights, rows) if is_wide else mean.add_(weights.to(rows.dtype) @ rows)
    if best is not None and not is_wide:
        best = _correct(best, hidden, weight, largest, total, mean)
    log_z = (largest + total.log()).squeeze(1)
    found = None if best is None or not top else best[1][:, :top]
    return Scan(log_z, None if mean is None else mean.div_(total), found)


def _correct(
    best: tuple[Tensor, Tensor],
    hidden: Tensor,
    weight: Tensor,
    largest: Tensor,
    total: Tensor,
    mean: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute the likeliest tokens' logits again in float32. `total` and `mean` are changed in place.

    A bf16 product rounds a logit of 20 by up to 0.06. That error would be in log Z whenever one token has most of the
    mass. The many unlikely tokens' errors cancel out. Returns the exact logits and their ids, likeliest first.
    """
    rounded, ids = best
    rows = wide(weight[ids])
    exact = torch.bmm(rows, wide(hidden).unsqueeze(2)).squeeze(2)
    change = (exact - largest).exp_() - (rounded - largest).exp_()
    total.add_(change.sum(-1, keepdim=True)).clamp_(min=torch.finfo(total.dtype).tiny)
    if mean is not None:
        mean.add_(torch.bmm(change.unsqueeze(1), rows).squeeze(1))
    exact, order = exact.sort(-1, descending=True)
    return exact, ids.gather(1, order)


def _merge(best: tuple[Tensor, Tensor] | None, logits: Tensor, start: int, k: int) -> tuple[Tensor, Tensor]:
    values, ids = logits.topk(min(k, logits.shape[1]), -1)
    ids = ids + start
    if best is None:
        return values, ids
    values, ids = torch.cat([best[0], values], -1), torch.cat([best[1], ids], -1)
    values, order = values.topk(min(k, values.shape[1]), -1)
    return values, ids.gather(1, order)


def logprobs_at(hidden: Tensor, weight: Tensor, found: Scan, ids: Tensor) -> Tensor:
    """Log-probs [N, K] of `ids` [N, K], with gradient to `hidden` if the scan has `expected`."""
    expected = torch.empty(0, device=hidden.device) if found.expected is None else found.expected
    values: Tensor = _LogProbs.apply(hidden, weight, found.log_z, expected, ids)  # type: ignore[no-untyped-call]
    return values


class _LogProbs(torch.autograd.Function):
    """h·w_y − log Z, and its gradient by h. The head is frozen."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, log_z: Tensor, expected: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(weight, expected, ids)
        ctx.dtype = hidden.dtype
        parts = [
            torch.bmm(wide(weight[i]), wide(h).unsqueeze(2)).squeeze(2)
            for h, i in zip(*(torch.split(x, _n_gathered(weight, ids)) for x in (hidden, ids)), strict=True)
        ]
        return torch.cat(parts) - log_z[:, None]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        weight, expected, ids = ctx.saved_tensors
        parts = [
            torch.bmm(g.unsqueeze(1), wide(weight[i])).squeeze(1).sub_(g.sum(1, keepdim=True) * e)
            for g, e, i in zip(*(torch.split(x, _n_gathered(weight, ids)) for x in (grad, expected, ids)), strict=True)
        ]
        return torch.cat(parts).to(ctx.dtype), None, None, None, None


def _n_gathered(weight: Tensor, ids: Tensor) -> int:
    return max(1, _GATHERED // (weight.shape[1] * max(1, ids.shape[1])))


def wide(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or unchanged if it is float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
