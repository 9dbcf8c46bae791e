"""KL to the base: a penalty that keeps behaviour without complaints as it was.

k2 as a loss, because its gradient is that of the reverse KL (arXiv 2510.01555), with truncated importance weights
because the tokens were drawn from μ. It covers the rows with a usable ratio that the step trains anyway, so it is
stamped last.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives import divergences
from burnish.learner.objectives.losses import truncated_weights
from burnish.learner.objectives.objective import Objective, Term

WEIGHT_CAP = 2.0


class KlToBase(Objective):
    """w̄ · ½(log π_θ − log π_base)² on sampled tokens."""

    name: ClassVar[str] = "kl_to_base"
    stream: ClassVar[str] = "base"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        covered = [row for row in rows if row.behaviour_logprobs is not None and row.streams]
        for row, logprobs in zip(covered, policy.logprobs(covered, Weights.BASE), strict=True):
            assert row.behaviour_logprobs is not None
            row.streams["base"] = logprobs
            row.streams["base_behaviour"] = torch.tensor(list(row.behaviour_logprobs))
        return {"n_rows": float(len(covered))}

    def term(self, batch: TokenBatch) -> Term:
        logprobs, base = batch.sampled[batch.where(self.stream)], batch.stream(self.stream)
        weights = truncated_weights(logprobs, batch.at(self.stream, "base_behaviour"), WEIGHT_CAP)
        total = (weights * divergences.k2(logprobs, base)).sum()
        return Term(total, len(base), {"k3": divergences.k3(logprobs.detach(), base).sum().item()})
