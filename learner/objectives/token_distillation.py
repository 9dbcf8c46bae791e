"""Hindsight distillation at the sampled tokens alone: the teacher scores each sampled token with the hint in its
prompt.

One number per token instead of a distribution: no top K is kept, and the estimate is noisier. Rows, teacher, refusals
and weights are those of `Distillation`, under the same name in metrics.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from burnish.learner.data.rows import Row, Text, TokenBatch
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives.distillation import TOKEN_CAP, Distillation
from burnish.learner.objectives.divergences import token_distillation
from burnish.learner.objectives.objective import Term, row_weights


class TokenDistillation(Distillation):
    """−κ·A·log π_θ with A = log π_T − log π_θ within ±2 nats, κ = min(ρ, 2)."""

    stream: ClassVar[str] = "teacher_sampled"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """As `Distillation.stamp`. Then the teacher's log-probs of the sampled tokens replace its top K."""
        facts = super().stamp(rows, policy)
        taught = [row for row in rows if row.streams.pop("teacher_top", None) is not None]
        prompts = [row.sample.hinted_prompt_ids if row.sample is not None else None for row in taught]
        asked = [Text(ids or (), row.completion_ids, row.temperature) for ids, row in zip(prompts, taught, strict=True)]
        for row, found in zip(taught, policy.logprobs(asked, Weights.TEACHER), strict=True):
            del row.streams["top_ids"]
            row.streams[self.stream] = found
        return facts

    def term(self, batch: TokenBatch) -> Term:
        student, teacher = batch.sampled[batch.where(self.stream)], batch.stream(self.stream)
        losses = self.importance(batch, student) * token_distillation(student, teacher, TOKEN_CAP)
        gap = (student.detach() - teacher).sum().item()
        return Term((row_weights(batch, self.stream) * losses).sum(), len(teacher), {"divergence": gap})
