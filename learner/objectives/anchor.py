"""Anchors: on the base's own answers to general prompts, the policy keeps the base's predictions.

The term is a divergence and not a likelihood, so it is silent wherever the policy still predicts as the base does.
Measured as the largest single stabiliser. Rows without a sample are anchors, except right replies.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from burnish.learner.data.right_replies import RightReply
from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives.divergences import tail_reverse_kl
from burnish.learner.objectives.objective import Objective, Term

TOP_K = 20
"""The base's likeliest tokens that are compared one by one. The rest is one tail bin."""


class Anchor(Objective):
    """KL(π_base ‖ π_θ) at the anchors' tokens, over the base's top K and a tail bin."""

    name: ClassVar[str] = "anchor"
    stream: ClassVar[str] = "anchor"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        anchors = [row for row in rows if row.sample is None and row.place is None and not isinstance(row, RightReply)]
        k = min(TOP_K, policy.model.config.vocab_size - 1)  # or the tail would be empty
        for row, (ids, logprobs) in zip(anchors, policy.likeliest(anchors, k, Weights.BASE), strict=True):
            row.streams["anchor_ids"], row.streams["anchor"] = ids, logprobs
        return {"n_rows": float(len(anchors))}

    def term(self, batch: TokenBatch) -> Term:
        index, ids = batch.where(self.stream), batch.at(self.stream, "anchor_ids")
        divergence = tail_reverse_kl(batch.stream(self.stream), batch.at_ids(ids, index))  # KL(first ‖ second)
        return Term(divergence.sum(), len(index))
