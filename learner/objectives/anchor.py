"""Anchors: the base's own answers, learned again in every step, so that the adapter forgets little of the base.

Measured as the largest single stabiliser. Rows without a sample are anchors, except right replies.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from burnish.learner.data.right_replies import RightReply
from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy
from burnish.learner.objectives.losses import negative_log_likelihood
from burnish.learner.objectives.objective import Objective, Term


class Anchor(Objective):
    """−log π_θ of the anchors' tokens."""

    name: ClassVar[str] = "anchor"
    stream: ClassVar[str] = "anchor"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        anchors = [row for row in rows if row.sample is None and row.place is None and not isinstance(row, RightReply)]
        for row in anchors:
            row.streams["anchor"] = torch.ones(row.n_tokens)
        return {"n_rows": float(len(anchors))}

    def term(self, batch: TokenBatch) -> Term:
        index = batch.where(self.stream)
        return Term(negative_log_likelihood(batch.sampled[index]).sum(), len(index))
