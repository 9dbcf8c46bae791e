"""The length of a step: how far it moves the policy, and how that is brought to a target.

A learning rate says nothing about how far a model moves: the same rate is a crawl for one model and a leap for another.
The KL from the policy before a step to the policy after it, in nats a token on the step's own rows, means the same for
every model. It grows with the square of the update, so a few measurements find the factor that meets a target. This is
the trust region of TRPO (arXiv 1502.05477), with a line search in both directions.
"""

import math
from collections.abc import Sequence

import torch

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy
from burnish.learner.model.predictions import Predictions
from burnish.learner.model.ranks import Ranks

NEAR = (0.8, 1.25)
"""A KL within these factors of its target is near enough."""
_ADVANTAGES = {"advantages", "group_advantages"}
MAX_SCALINGS = 8
LEAST = {torch.bfloat16: 0.004}
"""Shortest steps that can be measured, in nats a token, by the type of the base's weights. In bfloat16 any change of
the weights, however small, measures as 0.002 nats, because other numbers are rounded (decision 73).
"""
GROUPS_SHARE = 0.25
"""The share of its KL that a step has which learns from groups alone: half the length. With longer ones
versions kept less of their other abilities (decision 74).
"""
LARGEST_FACTOR = 5.0
"""Largest change of the length at a time. The quadratic law holds near the policy only."""


def signal(rows: Sequence[Row]) -> float:
    """How much of a step's replies teach something, 0 to 1: the share of their tokens, each by its row's strength.

    A row with a hint or a right reply counts in full. A row with a reward alone and a member of a shadow group count by
    their advantage: in full from one half on, which a first surprise has. So a step in which little was wrong moves
    little.
    """
    strengths = [(row.n_tokens, _strength(row)) for row in rows if row.is_own]
    n_tokens = sum(n for n, _ in strengths)
    return sum(n * strength for n, strength in strengths) / n_tokens if n_tokens else 1.0


def _strength(row: Row) -> float:
    if set(row.streams) - _ADVANTAGES - {"behaviour", "group_behaviour", "own", "base", "base_behaviour"}:
        return 1.0
    found = [float(row.streams[name].abs().max()) for name in _ADVANTAGES if name in row.streams]
    return min(1.0, 2.0 * max(found, default=0.0))


class StepLength:
    """The policy before an update, and the way back to it. Made before the first pass, used after the update."""

    def __init__(self, policy: Policy, ranks: Ranks) -> None:
        self._policy, self._ranks = policy, ranks
        self._weights = {name: tensor.detach().clone() for name, tensor in policy.parameters().items()}
        self._before: list[tuple[list[Row], Predictions]] = []
        self._changes: dict[str, float] = {}

    def keep(self, batch: TokenBatch) -> None:
        """Keep the predictions of the policy's own replies in `batch`, which is a micro-batch of the first pass."""
        own = [row for row in batch.rows if row.is_own]
        if own:
            is_own = torch.cat([torch.full((row.n_tokens,), row.is_own) for row in batch.rows])
            index = is_own.nonzero().squeeze(1).to(batch.predictions.device)
            self._before.append((own, batch.predictions.kept(index)))

    def kl(self) -> float:
        """Mean KL from the policy before to the present one, in nats a token of the kept replies."""
        sums = {"kl": 0.0, "n_tokens": 0.0}
        for rows, before in self._before:
            with torch.no_grad():
                after = self._policy.predictions(rows)
                sums["kl"] += float(before.kl_to(after).sum())
                self._note_changes(rows, before, after)
            sums["n_tokens"] += sum(row.n_tokens for row in rows)
        found = self._ranks.add(sums)
        return found["kl"] / max(1.0, found["n_tokens"])

    def changes(self) -> dict[str, float]:
        """By how much the update changed the log-prob of each reply of a sample, in nats a token, at the last `kl`."""
        return self._ranks.add(self._changes)

    def _note_changes(self, rows: Sequence[Row], before: Predictions, after: Predictions) -> None:
        ids = torch.tensor([token for row in rows for token in row.completion_ids], device=after.device)[:, None]
        moved = (after.at_ids(ids) - before.at_ids(ids)).squeeze(1)
        for row, part in zip(rows, torch.split(moved, [row.n_tokens for row in rows]), strict=True):
            if row.sample is not None and row.n_tokens:
                self._changes[row.sample.interaction_id] = float(part.mean())

    def reachable(self, target: float) -> float:
        """The target, or the shortest step that can be measured if that is longer."""
        return max(target, LEAST.get(self._policy.dtype, 0.0))

    def fit(self, target: float) -> tuple[float, float]:
        """Scale the update until its KL is near `target`. Returns (factor on the update, KL)."""
        after = {name: tensor.detach().clone() for name, tensor in self._policy.parameters().items()}
        scale, found = 1.0, self.kl()
        below: tuple[float, float] | None = None
        above: tuple[float, float] | None = None
        for _ in range(MAX_SCALINGS):
            if NEAR[0] * target <= found <= NEAR[1] * target:
                break
            if 0.0 < found < target:
                below = (scale, found)
            elif target < found < math.inf:
                above = (scale, found)
            if below is not None and above is not None:
                scale = _between(below, above, target)
            else:
                scale *= _factor(found, target)
            self._set(after, scale)
            found = self.kl()
        return scale, found

    @torch.no_grad()
    def _set(self, after: dict[str, torch.Tensor], scale: float) -> None:
        for name, tensor in self._policy.parameters().items():
            before = self._weights[name]
            tensor.copy_(before + scale * (after[name] - before))


def _factor(found: float, target: float) -> float:
    """The change of the scale by the quadratic law, within `LARGEST_FACTOR`."""
    if found == 0.0:
        return LARGEST_FACTOR
    factor = math.sqrt(target / found) if math.isfinite(found) else 0.0
    return min(LARGEST_FACTOR, max(1.0 / LARGEST_FACTOR, factor))


def _between(below: tuple[float, float], above: tuple[float, float], target: float) -> float:
    """The scale at which the power law through two measured (scale, KL) meets the target. Where the KL grows faster
    than the square, the quadratic law jumps from one side of the target to the other.
    """
    share = math.log(target / below[1]) / math.log(above[1] / below[1])
    return float(below[0] * (above[0] / below[0]) ** share)
