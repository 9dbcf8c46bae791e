"""Hindsight distillation: be as one would have been had one known the hint.

The teacher (last promoted adapter, or the base) scores the *same* completion with the hint in its prompt; the student is
drawn to it by the reverse KL over the student's top K and a tail bin (reference/algorithms.md §2.2). Only rows with a hint
carry the term. Off-policy tokens are weighted by κ = min(ρ, 2) where the row has a usable ratio, by 1 where it has none.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from learner.distillation import cap_per_token, tail_reverse_kl
from learner.losses import truncated_weights
from learner.objectives.objective import Objective, Term
from learner.policy import Policy, Weights
from learner.rows import Row, Text, TokenBatch

TOKEN_CAP = 2.0
"""Most that one token may count, in nats: a few far tokens must not drown the row (§2.3)."""
WEIGHT_CAP = 2.0


class Distillation(Objective):
    """Reverse KL(student ‖ teacher with hint), top K + tail."""

    name: ClassVar[str] = "distillation"
    stream: ClassVar[str] = "teacher_top"

    def __init__(self, *, top_k: int) -> None:
        self.top_k = top_k

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        hinted = [row for row in rows if row.sample is not None and row.sample.hinted_prompt_ids is not None]
        if not hinted:
            return {"n_rows": 0.0}
        # K ≤ V − 1, or the tail would be empty
        k = min(self.top_k, policy.model.config.vocab_size - 1)
        tops = policy.top(hinted, k)
        asked = [
            Text(row.sample.hinted_prompt_ids, row.completion_ids, row.temperature)
            for row in hinted
            if row.sample is not None and row.sample.hinted_prompt_ids is not None
        ]
        for row, ids, values in zip(hinted, tops, policy.logprobs_at(asked, tops, Weights.TEACHER), strict=True):
            assert row.sample is not None
            has_ratio = row.sample.has_ratio
            recorded = torch.tensor(list(row.sample.behaviour_logprobs))
            row.streams["top_ids"] = ids
            row.streams["teacher_top"] = values
            # NaN marks "no usable ratio"; `term` gives those tokens weight 1
            row.streams["distill_behaviour"] = recorded if has_ratio else torch.full_like(recorded, torch.nan)
        return {"n_rows": float(len(hinted))}

    def term(self, batch: TokenBatch) -> Term:
        index, ids = batch.where(self.stream), batch.at(self.stream, "top_ids")
        behaviour = batch.at(self.stream, "distill_behaviour")
        student = batch.logprobs[index].gather(1, ids)
        weights = truncated_weights(batch.sampled[index], behaviour, WEIGHT_CAP).nan_to_num(nan=1.0)
        divergence = tail_reverse_kl(student, batch.stream(self.stream))
        total = (weights * cap_per_token(divergence, TOKEN_CAP)).sum()
        sums = {"divergence": divergence.detach().sum().item(), "top_mass": student.detach().exp().sum().item()}
        return Term(total, len(index), sums)
