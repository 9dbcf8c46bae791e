"""Supervised learning of right replies, token by token: demonstrations, and good replies of earlier steps.

A correction is left out: it may only say what should have been different.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from burnish.learner.data.right_replies import RightReply
from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy
from burnish.learner.objectives.losses import negative_log_likelihood
from burnish.learner.objectives.objective import Objective, Term, row_weights


class Supervised(Objective):
    """−log π_θ of the tokens of demonstrations and of earlier good replies."""

    name: ClassVar[str] = "sft"
    stream: ClassVar[str] = "supervised"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        right = [row for row in rows if isinstance(row, RightReply) and row.is_whole]
        for row in right:
            row.streams[self.stream] = torch.ones(row.n_tokens)
        return {"n_rows": float(len(right))}

    def term(self, batch: TokenBatch) -> Term:
        losses = negative_log_likelihood(batch.sampled[batch.where(self.stream)])
        return Term((row_weights(batch, self.stream) * losses).sum(), len(losses))
