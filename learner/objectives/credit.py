"""Credit: the advantage of each reply of a step, by the estimator in `learner.recipe.advantage`.

A group is a set of replies with rewards from the same source. Under `prompt` they answer one prompt with equal engine
ids, as when a client asks for several choices or asks again. Under `session` they are turns of one session, which
removes a user's leniency, and with it the fact that the session went well. Two sources never meet in one group. Live
traffic mostly asks each prompt once. So a group of one is compared with the running baseline, as all rows are under
`baseline`. GRPO with a group of one would have no baseline at all.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from burnish.learner.data.samples import Sample
from burnish.learner.objectives.advantages import GROUPED, RunningBaseline, by_step


def advantages_of(samples: Sequence[Sample], baseline: RunningBaseline, estimator: str, groups: str) -> Tensor:
    """One advantage per judged sample [B], with rewards as (r+1)/2. Every reward is counted into `baseline`.

    Steps of a tool session with a known outcome are standardised among those at the same place, under every estimator.
    """
    advantages = torch.zeros(len(samples))
    stepwise = [i for i, sample in enumerate(samples) if sample.step is not None]
    if stepwise:
        rewards = torch.tensor([_reward(samples[i]) for i in stepwise])
        advantages[stepwise] = by_step(rewards, [samples[i].step or 0 for i in stepwise])
    plain = [i for i, sample in enumerate(samples) if sample.step is None]
    for i in plain:
        advantages[i] = baseline.advantage(samples[i].reward_source or "", _reward(samples[i]))
    if estimator == "baseline":
        return advantages
    keys = [_group(samples[i], groups) for i in plain]
    shared = [(i, key) for i, key in zip(plain, keys, strict=True) if keys.count(key) > 1]
    if shared:
        index = [i for i, _ in shared]
        successes = torch.tensor([(_reward(samples[i]) + 1.0) / 2.0 for i in index])
        advantages[index] = GROUPED[estimator](successes, [key for _, key in shared])
    return advantages


def _reward(sample: Sample) -> float:
    assert sample.reward is not None
    return sample.reward


def _group(sample: Sample, groups: str) -> Hashable:
    alike: Hashable = sample.prompt_ids.tobytes() if groups == "prompt" else sample.session
    return (sample.reward_source, sample.interaction_id if alike is None else alike)
