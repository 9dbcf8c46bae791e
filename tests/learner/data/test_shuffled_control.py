"""The shuffled control: rewards of other steps, none of the step's own, and the same after a restart."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from burnish.learner.data.samples import Sample
from burnish.learner.data.shuffled_control import ShuffledSignals

Samples = Callable[[int], list[Sample]]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def rewards(samples: Sequence[Sample]) -> list[float]:
    return [sample.reward or 0.0 for sample in samples]


def with_reward(samples: Sequence[Sample], reward: float) -> list[Sample]:
    return [replace(sample, reward=reward, reward_source=f"said {reward}") for sample in samples]


def test_the_first_step_permutes_its_own_rewards_and_leaves_hints_out(make_samples: Samples) -> None:
    samples = make_samples(9)
    shuffled = ShuffledSignals().shuffle(samples, seeded())
    assert any(sample.hint for sample in samples)
    assert sorted(rewards(shuffled)) == sorted(rewards(samples)) and rewards(shuffled) != rewards(samples)
    for before, after in zip(samples, shuffled, strict=True):
        assert (before.interaction_id, before.completion_ids) == (after.interaction_id, after.completion_ids)
        assert after.hint is None and after.hinted_prompt_ids is None


def test_a_later_step_has_rewards_of_earlier_ones_alone(make_samples: Samples) -> None:
    signals, generator = ShuffledSignals(), seeded()
    signals.shuffle(with_reward(make_samples(9), -1.0), generator)
    found = signals.shuffle(with_reward(make_samples(8), 1.0), generator)
    assert rewards(found) == [-1.0] * 8 and {sample.reward_source for sample in found} == {"said -1.0"}
    assert 1.0 in rewards(signals.shuffle(with_reward(make_samples(8), 0.5), generator))  # by now they are earlier ones


def test_with_too_few_known_rewards_the_samples_own_are_drawn_too(make_samples: Samples) -> None:
    signals, generator = ShuffledSignals(), seeded()
    signals.shuffle(with_reward(make_samples(3), -1.0), generator)
    found = rewards(signals.shuffle(with_reward(make_samples(9), 1.0), generator))
    assert len(found) == 9 and 6 <= found.count(1.0) <= 9


def test_old_rewards_are_forgotten(make_samples: Samples) -> None:
    signals, generator = ShuffledSignals(), seeded()
    signals.shuffle(with_reward(make_samples(9), -1.0), generator)
    for _ in range(8):
        signals.shuffle(with_reward(make_samples(8), 1.0), generator)
    assert len(signals.earlier) == ShuffledSignals.MOST
    assert rewards(signals.shuffle(with_reward(make_samples(9), 0.5), generator)) == [1.0] * 9


def test_its_state_goes_through_json(make_samples: Samples) -> None:
    going, resumed = ShuffledSignals(), ShuffledSignals()
    going.shuffle(make_samples(9), seeded())
    resumed.restore(json.loads(json.dumps(going.state())))
    assert resumed.earlier == going.earlier
    assert rewards(resumed.shuffle(make_samples(9), seeded())) == rewards(going.shuffle(make_samples(9), seeded()))
