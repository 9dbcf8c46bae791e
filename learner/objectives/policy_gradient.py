"""Policy gradient on the judged reward: advantage over a running baseline, clipped on ρ = π_θ/μ.

Bypass mode (reference/algorithms.md §1.5): μ is what the engine recorded, so the clip limits staleness and engine
mismatch together, and no further importance weight is put on top. Rows of a reward source share a baseline; steps of tool sessions
whose outcome is known are standardised among those at the same place. A row whose
advantage is below 0.05 in size says nothing and carries no term.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from learner import kl
from learner.advantages import RunningBaseline, by_step, scale_by_tokens
from learner.losses import clipped_policy_loss
from learner.objectives.objective import Objective, Term
from learner.policy import Policy
from learner.rows import Row, TokenBatch
from learner.samples import Sample

MIN_ADVANTAGE = 0.05
VETO_LOW, VETO_HIGH = 1e-4, 100.0
"""A row with any token whose ρ is outside is not trained: its log-probs cannot be this policy's (§1.5)."""


class PolicyGradient(Objective):
    """PPO's clipped loss with dual clip; `scale_floor` switches division by max(σ_tok, floor) on."""

    name: ClassVar[str] = "policy_gradient"
    stream: ClassVar[str] = "advantages"

    def __init__(
        self,
        *,
        clip_low: float,
        clip_high: float,
        dual_clip: float,
        baseline_decay: float,
        scale_floor: float | None = None,
    ) -> None:
        self.clip_low, self.clip_high, self.dual_clip = clip_low, clip_high, dual_clip
        self.scale_floor = scale_floor
        self.baseline = RunningBaseline(baseline_decay)

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """Evidence of older versions is forgotten a little, then rows are counted in the order of their versions."""
        self.baseline.forget()
        # judged neutral (0) is not a middling success: it says nothing (§1.2)
        judged = [row for row in rows if row.sample is not None and _says(row.sample)]
        judged.sort(key=lambda row: row.sample.version if row.sample else 0)
        advantages = self._advantages([row.sample for row in judged if row.sample is not None])
        trained = [i for i, row in enumerate(judged) if row.sample and row.sample.has_ratio]
        heard = [i for i in trained if abs(advantages[i].item()) >= MIN_ADVANTAGE]
        if heard and self.scale_floor is not None:
            n_tokens = torch.tensor([float(judged[i].n_tokens) for i in heard])
            advantages[heard] = scale_by_tokens(advantages[heard], n_tokens, self.scale_floor)
        for i in heard:
            row, sample = judged[i], judged[i].sample
            assert sample is not None
            row.streams["advantages"] = torch.full((row.n_tokens,), advantages[i].item())
            row.streams["behaviour"] = torch.tensor(list(sample.behaviour_logprobs))
        facts = {"n_rows": float(len(heard)), "n_weak": float(len(trained) - len(heard))}
        values = [self.baseline.value(cluster) for cluster in self.baseline.evidence]
        return facts | ({"baseline": sum(values) / len(values)} if values else {})

    def term(self, batch: TokenBatch) -> Term:
        index, behaviour = batch.where(self.stream), batch.at(self.stream, "behaviour")
        logprobs = batch.sampled[index]
        result = clipped_policy_loss(
            logprobs,
            behaviour,
            batch.stream(self.stream),
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )
        kept, n_vetoed = _unvetoed(batch, self.stream, result.ratio.detach())
        found = logprobs.detach()
        sums = {
            "ratio": result.ratio.sum().item(),
            "clip_fraction": result.is_clipped.sum().item(),
            "kl_behaviour": kl.k1(behaviour, found).sum().item(),
            "k3_behaviour": kl.k3(behaviour, found).sum().item(),
            "veto_fraction": float(n_vetoed),
        }
        # a vetoed row stays in the denominator: it weighs nothing, and lends its weight to no other row
        return Term(torch.where(kept, result.loss, 0.0).sum(), len(index), sums)

    def state(self) -> dict[str, Any]:
        return self.baseline.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.baseline.restore(dict(state))

    def _advantages(self, samples: Sequence[Sample]) -> torch.Tensor:
        """One for each sample [B]: over its source's running baseline; in a tool session whose outcome is known, over its like."""
        advantages = torch.zeros(len(samples))
        stepwise: list[tuple[int, float, int]] = []
        for i, sample in enumerate(samples):
            assert sample.reward is not None
            if sample.step is not None:
                stepwise.append((i, sample.reward, sample.step))
            else:
                advantages[i] = self.baseline.advantage(sample.reward_source or "", sample.reward)
        if stepwise:
            index, rewards, steps = zip(*stepwise, strict=True)
            advantages[list(index)] = by_step(torch.tensor(rewards), steps)
        return advantages


def _says(sample: Sample) -> bool:
    """A row judged neutral says nothing; where outcome and step add up to nothing they have spoken all the same."""
    return sample.reward is not None and (sample.reward != 0.0 or sample.step is not None)


def _unvetoed(batch: TokenBatch, stream: str, ratio: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Which tokens [n] belong to rows without a wild ratio, and how many tokens do not."""
    lengths = [row.n_tokens for row in batch.rows if stream in row.streams]
    calm = [bool(((part > VETO_LOW) & (part < VETO_HIGH)).all()) for part in torch.split(ratio, lengths)]
    kept = torch.cat([torch.full((n,), ok) for n, ok in zip(lengths, calm, strict=True)])
    return kept.to(ratio.device), sum(n for n, ok in zip(lengths, calm, strict=True) if not ok)
