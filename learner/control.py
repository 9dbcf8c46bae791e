"""The shuffled control: the same rows, rewards and hints, but each signal with another row.

What is learned from shuffled signals is not learned from feedback; a score that rises all the same would be an artefact.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from learner.prompts import hinted_prompt
from learner.samples import Sample


def shuffle_signals(samples: Sequence[Sample], tokenizer: Any, generator: torch.Generator) -> list[Sample]:
    """`samples` with their (reward, source, hint) permuted; a hint that cannot enter its new row's prompt is lost."""
    order = torch.randperm(len(samples), generator=generator).tolist()
    shuffled = []
    for sample, donor in zip(samples, (samples[i] for i in order), strict=True):
        prompt = None
        if donor.hint is not None:
            prompt = hinted_prompt(tokenizer, sample.messages, sample.tools, donor.hint, sample.prompt_ids)
        shuffled.append(
            replace(
                sample,
                reward=donor.reward,
                reward_source=donor.reward_source,
                hint=donor.hint if prompt is not None else None,
                hinted_prompt_ids=prompt,
                is_hint_lost=donor.hint is not None and prompt is None,
            )
        )
    return shuffled
