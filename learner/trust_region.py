"""Trust region: how far one step may take the policy from where it began.

TRPO (Schulman et al. 2015, arXiv 1502.05477, appendix C) bounds KL(before ‖ after) and goes back along the step until the bound holds.
So does this, behind whatever the optimiser did: a learning rate that is too large makes steps as long as the bound allows, and no
longer. The KL is k3's (`learner/kl.py`) over the tokens of the step's live rows, which the policy before, or one a few versions
older, has sampled.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from learner import kl
from learner.policy import Policy
from learner.rows import Row

MOST_TRIES = 4
SLACK = 1.1
"""A step is short enough where its KL is at most this many times the bound: another try would cost more than it gains."""
LEAST_SHARE = 0.1
"""Of the step, in one try: far out the KL is no longer quadratic."""


class TrustRegion:
    """Around the policy as it is when this is made. `limit` is in nats per token; `rows` are those that the policy spoke."""

    def __init__(self, policy: Policy, rows: Sequence[Row], limit: float) -> None:
        self._policy = policy
        self._rows = [row for row in rows if row.sample is not None]
        self._limit = limit
        self._begin = policy.copy_adapter()
        self._before = self._logprobs()

    def keep(self) -> dict[str, float]:
        """Bring the policy back along the way that it went, until it is inside.

        Metrics: `trust/wanted`, the KL of the whole step; `trust/kl`, that of what is left of it; `trust/share`, how much is left.
        """
        if not self._rows:
            return {}
        end, share = self._policy.copy_adapter(), 1.0
        wanted = found = self._divergence()
        for _ in range(MOST_TRIES):
            if found <= SLACK * self._limit:
                break
            # to the second order a KL goes with the square of the way
            share *= max(LEAST_SHARE, math.sqrt(self._limit / found)) if math.isfinite(found) else LEAST_SHARE
            self._policy.take_adapter({name: torch.lerp(begin, end[name], share) for name, begin in self._begin.items()})
            found = self._divergence()
        metrics = {"trust/wanted": wanted, "trust/kl": found, "trust/share": share}
        return {name: value for name, value in metrics.items() if math.isfinite(value)}

    def _divergence(self) -> float:
        """KL(before ‖ after), nats per token; infinite or no number where the policy has gone too far to say."""
        return float(kl.k3(self._before, self._logprobs()).mean())

    def _logprobs(self) -> Tensor:
        """Of all live tokens, one row behind the other, in double precision: small differences count."""
        return torch.cat([found.double() for found in self._policy.logprobs(self._rows)]) if self._rows else torch.zeros(0)
