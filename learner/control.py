"""The shuffled control: the same rows, but each reward with another row, and no hints or right replies.

What is learned from shuffled rewards is not learned from feedback; a score that rises all the same would be an artefact.
Hints are left out rather than shuffled: where all users want the same, anybody's hint teaches it beside any row (seen in the
demo: with permuted hints the score still rose from 0.10 to 0.92).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from learner.samples import Sample


def shuffle_signals(samples: Sequence[Sample], generator: torch.Generator) -> list[Sample]:
    """`samples` with their rewards (and sources) permuted and their hints and right replies taken away."""
    order = torch.randperm(len(samples), generator=generator).tolist()
    return [
        replace(
            sample.unhinted(),
            reward=donor.reward,
            reward_source=donor.reward_source,
            demonstration_ids=None,
            right_kind=None,
        )
        for sample, donor in zip(samples, (samples[i] for i in order), strict=True)
    ]
