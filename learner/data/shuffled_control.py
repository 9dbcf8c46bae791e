"""The shuffled control: the same rows, each with a reward that an earlier step earned, and no hints or right replies.

What is learned from shuffled rewards is not learned from feedback. If a score rises all the same, the rise is an
artefact. A permutation among the rows of one step is not enough: a step with better replies keeps its better rewards,
so the mean of the step still praises them (measured: 0.07 to 0.16 on average after 512 interactions). Hints are left
out rather than shuffled: if all users want the same, any user's hint teaches it on any row (measured in the demo: with
permuted hints the score still rose from 0.10 to 0.92).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from burnish.learner.data.samples import Sample

_Signal = tuple[float | None, str | None]


class ShuffledSignals:
    """Rewards (with their sources) of earlier steps, at most `MOST`. The oldest are dropped first."""

    MOST = 64

    def __init__(self) -> None:
        self.earlier: list[_Signal] = []

    def shuffle(self, samples: Sequence[Sample], generator: torch.Generator) -> list[Sample]:
        """`samples` without hints and right replies, each with a reward drawn from earlier steps, none twice in one
        step.

        If too few rewards are known yet, as in the first step, the samples' own rewards are drawn from too.
        """
        own: list[_Signal] = [(sample.reward, sample.reward_source) for sample in samples]
        known = self.earlier if len(self.earlier) >= len(own) else [*self.earlier, *own]
        drawn = torch.randperm(len(known), generator=generator).tolist()[: len(own)]
        self.earlier = [*self.earlier, *own][-self.MOST :]
        return [
            replace(sample.unhinted(), reward=reward, reward_source=source, demonstration_ids=None, right_kind=None)
            for sample, (reward, source) in zip(samples, (known[i] for i in drawn), strict=True)
        ]

    def state(self) -> list[list[Any]]:
        """As JSON values."""
        return [list(signal) for signal in self.earlier]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Restore a `state`."""
        self.earlier = [(reward, source) for reward, source in state]
