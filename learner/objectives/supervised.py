"""Supervised learning of right replies: demonstrations and corrections, token by token.

Off by default (`sft_weight`): it learns a person's text itself, while a policy gradient only shifts the agent's own
replies.
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
    """−log π_θ of the tokens of demonstrations and corrections."""

    name: ClassVar[str] = "sft"
    stream: ClassVar[str] = "supervised"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        right = [row for row in rows if isinstance(row, RightReply)]
        for row in right:
            row.streams[self.stream] = torch.ones(row.n_tokens)
        return {"n_rows": float(len(right))}

    def term(self, batch: TokenBatch) -> Term:
        losses = negative_log_likelihood(batch.sampled[batch.where(self.stream)])
        return Term((row_weights(batch, self.stream) * losses).sum(), len(losses))
