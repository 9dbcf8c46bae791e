"""Policy gradient on the judged reward: the advantage over the expected reward, clipped on the ratio to the behaviour
policy.

`bypass`: μ is what the engine recorded, so the clip on ρ = π_θ/μ limits staleness and engine mismatch together, without
a further importance weight. `token_tis`: the clip is on π_θ/π_v. π_v is the row's own version if its log-probs were
audited, else the policy before this step. The weight is min(π_v/μ, 2). The baseline of a reward is in `credit.py`. A
row without an advantage, or with a smaller one than `min_advantage`, carries no term. Small advantages are kept by
default: for an agent that is mostly liked they are its successes, and without them only the failures would push.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.data.samples import Sample
from burnish.learner.model.policy import Policy
from burnish.learner.objectives import divergences
from burnish.learner.objectives.advantages import RunningBaseline, scale_by_tokens
from burnish.learner.objectives.credit import advantages_of
from burnish.learner.objectives.losses import (
    ClippedLoss,
    clipped_policy_loss,
    decoupled_policy_loss,
    sequence_policy_loss,
    weighted_policy_loss,
)
from burnish.learner.objectives.objective import Objective, Term, row_weights
from burnish.learner.objectives.off_policy import VETO_HIGH, VETO_LOW


class PolicyGradient(Objective):
    """PPO's clipped loss with dual clip. `scale_floor` above 0 divides advantages by max(σ_tok, floor).

    `min_advantage`, `advantage` and `groups` are the settings of these names, `is_decoupled` is `token_tis`, `form` is
    `policy_loss`.
    """

    name: ClassVar[str] = "policy_gradient"
    stream: ClassVar[str] = "advantages"

    def __init__(
        self,
        *,
        clip_low: float,
        clip_high: float,
        dual_clip: float,
        baseline_decay: float,
        scale_floor: float = 0.0,
        min_advantage: float = 0.0,
        advantage: str = "baseline",
        groups: str = "prompt",
        is_decoupled: bool = False,
        form: str = "ppo",
    ) -> None:
        self.clip = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": dual_clip}
        self.scale_floor, self.min_advantage = scale_floor, min_advantage
        self.advantage, self.groups, self.is_decoupled, self.form = advantage, groups, is_decoupled, form
        self.baseline = RunningBaseline(baseline_decay)

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """Decay the evidence of older versions, then count the rows in the order of their versions."""
        self.baseline.forget()
        # a neutral verdict (0) is not half a success: it carries no signal (§1.2)
        judged = [row for row in rows if row.sample is not None and _has_signal(row.sample)]
        judged.sort(key=lambda row: row.sample.version if row.sample else 0)
        samples = [row.sample for row in judged if row.sample is not None]
        advantages = advantages_of(samples, self.baseline, self.advantage, self.groups)
        trained = [i for i, row in enumerate(judged) if row.sample and row.sample.has_ratio]
        weighted_rows = [i for i in trained if (size := abs(advantages[i].item())) > 0.0 and size >= self.min_advantage]
        if weighted_rows and self.scale_floor:
            n_tokens = torch.tensor([float(judged[i].n_tokens) for i in weighted_rows])
            advantages[weighted_rows] = scale_by_tokens(advantages[weighted_rows], n_tokens, self.scale_floor)
        for i in weighted_rows:
            row, sample = judged[i], judged[i].sample
            assert sample is not None
            row.streams["advantages"] = torch.full((row.n_tokens,), advantages[i].item())
            row.streams["behaviour"] = torch.tensor(list(sample.behaviour_logprobs))
            # NaN marks "not audited". An audit replaces it with the log-probs under the row's own version.
            row.streams["own"] = torch.full((row.n_tokens,), torch.nan)
        facts = {"n_rows": float(len(weighted_rows)), "n_weak": float(len(trained) - len(weighted_rows))}
        values = [self.baseline.value(cluster) for cluster in self.baseline.evidence]
        return facts | ({"baseline": sum(values) / len(values)} if values else {})

    def term(self, batch: TokenBatch) -> Term:
        index, behaviour = batch.where(self.stream), batch.at(self.stream, "behaviour")
        logprobs = batch.sampled[index]
        result = self._losses(batch, logprobs, behaviour)
        kept, n_vetoed = unvetoed(batch, self.stream, result.ratio.detach())
        found = logprobs.detach()
        sums = {
            "ratio": result.ratio.sum().item(),
            "clip_fraction": result.is_clipped.sum().item(),
            "kl_behaviour": divergences.k1(behaviour, found).sum().item(),
            "k3_behaviour": divergences.k3(behaviour, found).sum().item(),
            "veto_fraction": float(n_vetoed),
        }
        # a vetoed row stays in the denominator, so its weight does not pass to the other rows
        weighted = row_weights(batch, self.stream) * result.loss
        return Term(torch.where(kept, weighted, 0.0).sum(), len(index), sums)

    def state(self) -> dict[str, Any]:
        return self.baseline.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.baseline.restore(dict(state))

    def _losses(self, batch: TokenBatch, logprobs: torch.Tensor, behaviour: torch.Tensor) -> ClippedLoss:
        advantages = batch.stream(self.stream)
        if self.form == "cispo":
            return weighted_policy_loss(logprobs, behaviour, advantages)
        if self.form == "gspo":
            lengths = [row.n_tokens for row in batch.rows if self.stream in row.streams]
            bounds = {"clip_low": self.clip["clip_low"], "clip_high": self.clip["clip_high"]}
            return sequence_policy_loss(logprobs, behaviour, advantages, lengths, **bounds)
        if not self.is_decoupled:
            return clipped_policy_loss(logprobs, behaviour, advantages, **self.clip)
        own = batch.at(self.stream, "own")
        prox = torch.where(own.isnan(), logprobs.detach(), own)
        return decoupled_policy_loss(logprobs, prox, behaviour, advantages, **self.clip)


def _has_signal(sample: Sample) -> bool:
    """A neutral verdict carries no signal. But if outcome and step cancel out, the sample does carry one."""
    return sample.reward is not None and (sample.reward != 0.0 or sample.step is not None)


def unvetoed(batch: TokenBatch, stream: str, ratio: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Which tokens [n] belong to rows without a vetoed ratio, and how many tokens do not."""
    lengths = [row.n_tokens for row in batch.rows if stream in row.streams]
    in_range = [bool(((part > VETO_LOW) & (part < VETO_HIGH)).all()) for part in torch.split(ratio, lengths)]
    kept = torch.cat([torch.full((n,), ok) for n, ok in zip(lengths, in_range, strict=True)])
    return kept.to(ratio.device), sum(n for n, ok in zip(lengths, in_range, strict=True) if not ok)
