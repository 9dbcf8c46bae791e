"""Advantages: how much better a reply was than expected, as functions of arrays, and the running baseline for single
replies.

Guarantee of `RunningBaseline`: a row's baseline is read before that row updates it. So the baseline never depends on
the reply that it is compared with, which would bias the gradient.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


def _by_group(groups: Sequence[Hashable]) -> list[list[int]]:
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    return list(members.values())


def grpo(rewards: Tensor, groups: Sequence[Hashable], eps: float = 1e-6) -> Tensor:
    """(r − mean_G) / (std_G + eps), std with n−1. A group of one gets mean 0, std 1. `rewards` [B] -> [B]."""
    advantages = torch.empty_like(rewards)
    for members in _by_group(groups):
        inside = rewards[members]
        single = len(members) == 1
        mean, std = (0.0, 1.0) if single else (inside.mean(), inside.std(correction=1))
        advantages[members] = (inside - mean) / (std + eps)
    return advantages


def dr_grpo(rewards: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """r − mean_G without the std, which would weigh prompts by difficulty (arXiv 2503.20783). [B] -> [B].

    A group of one keeps r.
    """
    advantages = rewards.clone()
    for members in _by_group(groups):
        if len(members) > 1:
            advantages[members] = rewards[members] - rewards[members].mean()
    return advantages


def rloo(rewards: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """r minus the mean of the group's others (arXiv 2402.14740). A group of one keeps r. [B] -> [B]."""
    advantages = rewards.clone()
    for members in _by_group(groups):
        n = len(members)
        if n > 1:
            inside = rewards[members]
            advantages[members] = (inside - inside.mean()) * (n / (n - 1))
    return advantages


GROUPED: dict[str, Callable[[Tensor, Sequence[Hashable]], Tensor]] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}
"""The estimators that compare a reply with its group, by their names in `learner.recipe.advantage`."""


def by_step(rewards: Tensor, steps: Sequence[int], eps: float = 1e-6) -> Tensor:
    """Rewards of outcome plus step, standardised across the rows at the same place of their sessions. [B] -> [B].

    The place stands in for the group of alike states, which live traffic does not have (OpenClaw-RL's general agents).
    A row alone at its place is compared with all rows. A row that is alone altogether is halved, into [-1, 1].
    """
    if len(rewards) < 2:
        return rewards / 2.0
    advantages = (rewards - rewards.mean()) / (rewards.std(correction=1) + eps)
    for members in _by_group(steps):
        if len(members) > 1:
            inside = rewards[members]
            advantages[members] = (inside - inside.mean()) / (inside.std(correction=1) + eps)
    return advantages


def scale_by_tokens(advantages: Tensor, n_tokens: Tensor, floor: float = 0.25) -> Tensor:
    """Advantages divided by max(σ_tok, floor), σ_tok being their std in token measure (SPO++, arXiv 2608.24870). [B] ->
    [B].

    The floor keeps a batch of one sign from exploding: |A| grows by at most 1/floor.
    """
    weights = n_tokens / n_tokens.sum()
    mean = (weights * advantages).sum()
    std = torch.sqrt((weights * (advantages - mean) ** 2).sum())
    return advantages / torch.clamp(std, min=floor)


@dataclass
class RunningBaseline:
    """Expected reward per cluster from single replies: SPO (arXiv 2509.13232), with forgetting per version.

    Rewards in [−1, 1] count as (r+1)/2 successes. `evidence[cluster]` = (a, b), pseudo-counts of success and failure,
    both 1 at first. v̂ = a/(a+b). Advantages are in units of (r+1)/2, so in [−1, 1].
    """

    decay: float
    evidence: dict[str, tuple[float, float]] = field(default_factory=dict)

    def value(self, cluster: str) -> float:
        """v̂, the expected (r+1)/2 of `cluster`. 1/2 if the cluster is new."""
        a, b = self.evidence.get(cluster, (1.0, 1.0))
        return a / (a + b)

    def advantage(self, cluster: str, reward: float) -> float:
        """(r+1)/2 − v̂, with v̂ from before this reward. Then the reward is counted."""
        success = (reward + 1.0) / 2.0
        before = self.value(cluster)
        a, b = self.evidence.get(cluster, (1.0, 1.0))
        self.evidence[cluster] = (a + success, b + 1.0 - success)
        return success - before

    def forget(self) -> None:
        """Keep `decay` of all evidence. Called once per version, because each version is another policy."""
        self.evidence = {cluster: (a * self.decay, b * self.decay) for cluster, (a, b) in self.evidence.items()}

    def state(self) -> dict[str, Any]:
        """As JSON values. Floats survive bit for bit."""
        return {
            "decay": self.decay,
            "evidence": {cluster: list(pair) for cluster, pair in sorted(self.evidence.items())},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.decay = float(state["decay"])
        self.evidence = {cluster: (float(a), float(b)) for cluster, (a, b) in state["evidence"].items()}
