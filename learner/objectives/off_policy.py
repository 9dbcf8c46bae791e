"""The off-policy ratio and its two factors: ρ = π_θ/μ = (π_θ/π_v)·(π_v/μ).

π_v is the learner's own forward pass under the row's version. π_θ/π_v is *staleness*: it grows with every step in
between, and the clip limits it. π_v/μ is *engine mismatch*: two programs compute one number. It does not depend on
training. So if its mean is not nearly 1, the row's ids or version are not what the record says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from burnish.errors import AdapterError
from burnish.learner.data.samples import Sample, SkipReason
from burnish.learner.model.past_version import logprobs_under
from burnish.learner.model.policy import Policy
from burnish.learner.objectives import divergences

VETO_LOW, VETO_HIGH = 1e-4, 100.0
"""A row with any token ratio outside this range is not trained: its log-probs cannot be this policy's."""
TRUNCATE = 2.0

Adapters = Callable[[int], Path | None]
"""The directory of a version above 0. None if it is no longer kept."""


class Factors(NamedTuple):
    """Log-ratios per token [T]: `lag` is log π_θ/π_v, `mismatch` is log π_v/μ. Their sum is log ρ."""

    lag: Tensor
    mismatch: Tensor


class Audit(NamedTuple):
    """Log-probs under the rows' own versions, the codes of rows that failed by interaction id, and facts about the
    step.
    """

    own: dict[str, Tensor]
    dropped: dict[str, SkipReason]
    facts: dict[str, float]


def factors(current: Tensor, own: Tensor, behaviour: Tensor) -> Factors:
    """From log-probs [T] of the same tokens under π_θ, π_v and μ."""
    return Factors(current - own, own - behaviour)


def verdict(mismatch: Tensor, band: float) -> SkipReason | None:
    """Why a row's engine mismatch [T] forbids training. None if every ratio is within 1e-4…100 and the geometric mean
    within e^±`band`.

    The mean of logs, never their sum: a bias of 1.1 per token is 13,780 over a hundred of them.
    """
    ratios = mismatch.exp()
    if not bool(((ratios > VETO_LOW) & (ratios < VETO_HIGH)).all()):
        return SkipReason.VETOED
    return SkipReason.MISMATCH if abs(mismatch.mean().item()) > band else None


def describe(parts: Sequence[Factors]) -> dict[str, float]:
    """Per token over all rows: k3 of either factor, geometric mean and largest |log| of the mismatch, χ² of ρ, the
    share that truncation at 2 would affect. Empty for no rows.
    """
    if not parts:
        return {}
    lag, mismatch = torch.cat([part.lag for part in parts]), torch.cat([part.mismatch for part in parts])
    zero, rho = torch.zeros_like(lag), (lag + mismatch).exp()
    return {
        # the tokens come from the denominator's policy, so k3 is that of the denominator against the numerator
        "lag_k3": divergences.k3(zero, lag).mean().item(),
        "mismatch_k3": divergences.k3(zero, mismatch).mean().item(),
        "mismatch_ratio": math.exp(mismatch.mean().item()),
        "mismatch_max": mismatch.abs().max().item(),
        "chi_squared": (rho.square().mean() - 1.0).item(),
        "truncated": (rho > TRUNCATE).float().mean().item(),
    }


def audit(samples: Sequence[Sample], policy: Policy, adapters: Adapters, *, n_rows: int, band: float) -> Audit:
    """Score up to `n_rows` of the `samples` (evenly chosen, those with a ratio) under their own versions.

    If a version's adapter is gone or cannot be read, its rows stay unaudited and are counted.
    """
    eligible = [sample for sample in samples if sample.has_ratio]
    stride = max(1, math.ceil(len(eligible) / n_rows)) if n_rows else len(eligible) + 1
    chosen = eligible[::stride] if n_rows else []
    own: dict[str, Tensor] = {}
    for version in sorted({sample.version for sample in chosen}):
        rows = [sample for sample in chosen if sample.version == version]
        for sample, found in zip(rows, _under(version, rows, policy, adapters), strict=False):
            own[sample.interaction_id] = found
    scored = [sample for sample in chosen if sample.interaction_id in own]
    parts = {
        sample.interaction_id: factors(now, own[sample.interaction_id], torch.tensor(list(sample.behaviour_logprobs)))
        for sample, now in zip(scored, policy.logprobs(scored) if scored else [], strict=True)
    }
    reasons = {name: verdict(part.mismatch, band) for name, part in parts.items()}
    dropped = {name: reason for name, reason in reasons.items() if reason is not None}
    facts = describe(list(parts.values())) | {
        "n_audited": float(len(scored)),
        "n_gone": float(len(chosen) - len(scored)),
    }
    return Audit({name: value for name, value in own.items() if name not in dropped}, dropped, facts)


def _under(version: int, rows: Sequence[Sample], policy: Policy, adapters: Adapters) -> Sequence[Tensor]:
    """The rows' log-probs under `version`. Empty if it is gone."""
    directory = adapters(version) if version else None
    if version and directory is None:
        return ()
    try:
        return logprobs_under(policy, directory, rows)
    except AdapterError:
        return ()


def codes(dropped: Mapping[str, SkipReason]) -> dict[str, float]:
    """The number of rows dropped for each reason, as metrics."""
    found = list(dropped.values())
    return {f"dropped/{reason}": float(found.count(reason)) for reason in sorted(set(found))}
