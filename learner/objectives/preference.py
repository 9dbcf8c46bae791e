"""Direct preference optimisation on corrections: a person's corrected reply is preferred to the agent's (arXiv
2305.18290).

A pair's two replies may lie in different micro-batches, so the loss is written as its linearisation at the present
weights: DPO's gradient is β·σ(−β·margin)·(∇log π_θ(other) − ∇log π_θ(preferred)). A step is one gradient at the weights
of stamping, so the factor is measured then. Loss and gradient are DPO's own under any packing. A pair counts as one,
however long its replies are.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from burnish.learner.data.right_replies import RightReply
from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.data.samples import RightKind
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives.losses import preference_loss, preference_weights
from burnish.learner.objectives.objective import Objective, Term, row_weights


class Preference(Objective):
    """−log σ(β·margin) per pair of correction (preferred) and corrected reply, as the mean over a step's pairs.

    The margin is measured against `reference`: the base, or the teacher (the last promoted version).
    """

    name: ClassVar[str] = "dpo"
    stream: ClassVar[str] = "preference"

    def __init__(self, *, beta: float, reference: Weights) -> None:
        self.beta = beta
        self.reference = reference

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """`preference` holds a token's factor. `pair_loss` holds its share of the pair's loss and is carried by the
        preferred reply.
        """
        replies = {row.sample.interaction_id: row for row in rows if row.sample is not None}
        right = [row for row in rows if isinstance(row, RightReply) and row.of_sample is not None]
        corrections = [row for row in right if row.of_sample and row.of_sample.right_kind is RightKind.CORRECTION]
        pairs = [
            (row, replies[row.interaction_id])
            for row in corrections
            if list(row.completion_ids) != list(replies[row.interaction_id].completion_ids)
        ]
        if not pairs:
            return {"n_pairs": 0.0}
        flat = [row for pair in pairs for row in pair]
        now, before = policy.logprobs(flat), policy.logprobs(flat, self.reference)
        gains = torch.stack([(a - b).double().sum() for a, b in zip(now, before, strict=True)])  # [2·n_pairs]
        margins = gains[0::2] - gains[1::2]
        losses, weights = preference_loss(margins, self.beta), preference_weights(margins, self.beta)
        scale = sum(row.n_tokens for row in flat) / len(
            pairs
        )  # the trainer divides by tokens, but pairs are to be averaged
        for i, (preferred, other) in enumerate(pairs):
            factor, share = scale * weights[i].item(), scale * losses[i].item() / preferred.n_tokens
            preferred.streams["preference"] = torch.full((preferred.n_tokens,), -factor)
            preferred.streams["pair_loss"] = torch.full((preferred.n_tokens,), share)
            other.streams["preference"] = torch.full((other.n_tokens,), factor)
            other.streams["pair_loss"] = torch.zeros(other.n_tokens)
        return {
            "n_pairs": float(len(pairs)),
            "margin": margins.mean().item(),
            "accuracy": (margins > 0).double().mean().item(),
        }

    def term(self, batch: TokenBatch) -> Term:
        logprobs = batch.sampled[batch.where(self.stream)]
        weights = row_weights(batch, self.stream)
        linear = (weights * batch.stream(self.stream) * logprobs).sum()
        value = (weights * batch.at(self.stream, "pair_loss")).sum()
        return Term(linear - linear.detach() + value, len(logprobs))
