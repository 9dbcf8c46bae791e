"""Group gradient: policy gradient over shadow groups, each member compared with the others of its group.

The reward is the grader's score, the same function for every member. The live reply's next-state reward is a term of
another objective and never meets it. All rows of a group carry the stream, or none does. Equal scores give no gradient.
Source: GRPO (arXiv 2402.03300), Dr. GRPO without the division by the deviation (arXiv 2503.20783). Clip and veto as in
`policy_gradient`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy
from burnish.learner.objectives.advantages import GROUPED
from burnish.learner.objectives.losses import clipped_policy_loss
from burnish.learner.objectives.objective import Objective, Term, row_weights
from burnish.learner.objectives.policy_gradient import unvetoed


class GroupGradient(Objective):
    """PPO's clipped loss with dual clip on ρ = π_θ/μ. `advantage` is the setting `learner.recipe.group_advantage`."""

    name: ClassVar[str] = "group_gradient"
    stream: ClassVar[str] = "group_advantages"

    def __init__(self, *, clip_low: float, clip_high: float, dual_clip: float, advantage: str = "dr_grpo") -> None:
        self.clip = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": dual_clip}
        self.advantage = advantage

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        members = [(row, row.place) for row in rows if row.place is not None]
        if not members:
            return {}
        scores = torch.tensor([place.score for _, place in members])
        groups = [place.group for _, place in members]
        advantages = GROUPED[self.advantage](scores, groups)
        spread = {name: {place.score for _, place in members if place.group == name} for name in groups}
        for (row, place), advantage in zip(members, advantages.tolist(), strict=True):
            if len(spread[place.group]) > 1:
                row.streams["group_advantages"] = torch.full((row.n_tokens,), advantage)
                row.streams["group_behaviour"] = torch.tensor(list(place.behaviour_logprobs))
        n_groups = sum(len(values) > 1 for values in spread.values())
        return {"n_groups": float(n_groups), "n_rows": float(len(members)), "score_mean": scores.mean().item()}

    def term(self, batch: TokenBatch) -> Term:
        index, behaviour = batch.where(self.stream), batch.at(self.stream, "group_behaviour")
        result = clipped_policy_loss(batch.sampled[index], behaviour, batch.stream(self.stream), **self.clip)
        kept, n_vetoed = unvetoed(batch, self.stream, result.ratio.detach())
        sums = {
            "ratio": result.ratio.sum().item(),
            "clip_fraction": result.is_clipped.sum().item(),
            "veto_fraction": float(n_vetoed),
        }
        weighted = row_weights(batch, self.stream) * result.loss
        return Term(torch.where(kept, weighted, 0.0).sum(), len(index), sums)
