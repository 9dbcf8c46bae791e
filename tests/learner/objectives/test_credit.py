"""Advantages by estimator: what a group is, and that rows without one fall back on the running baseline."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.data.samples import Sample
from burnish.learner.objectives.advantages import GROUPED, RunningBaseline
from burnish.learner.objectives.credit import advantages_of

Samples = Callable[..., list[Sample]]


def credit(samples: list[Sample], estimator: str, groups: str = "prompt") -> list[float]:
    found: list[float] = advantages_of(samples, RunningBaseline(0.9), estimator, groups).tolist()
    return found


def alike(make_samples: Samples, rewards: list[float]) -> list[Sample]:
    """Replies to one prompt, in sessions of their own."""
    [first, *_] = make_samples(1, hints=False)
    return [
        replace(first, interaction_id=f"c{i}", reward=reward, reward_source="judge", session=f"s{i}")
        for i, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize(
    ("estimator", "golden"),
    [
        ("grpo", [0.57734925, -1.15469861, 0.57734925]),
        ("dr_grpo", [1 / 3, -2 / 3, 1 / 3]),
        ("rloo", [0.5, -1.0, 0.5]),
    ],
)
def test_replies_to_one_prompt_are_a_group(make_samples: Samples, estimator: str, golden: list[float]) -> None:
    """Rewards +1, −1, +1 are successes 1, 0, 1."""
    samples = alike(make_samples, [1.0, -1.0, 1.0])
    assert credit(samples, estimator) == pytest.approx(golden, abs=1e-5)
    assert credit(samples, "baseline") == pytest.approx([0.5, -2 / 3, 0.5])


def test_a_reply_that_is_alone_is_compared_with_the_baseline(make_samples: Samples) -> None:
    samples = make_samples(4, hints=False)
    for estimator in GROUPED:
        assert credit(samples, estimator) == credit(samples, "baseline")


def test_turns_of_a_session_are_a_group_and_unknown_sessions_are_not(make_samples: Samples) -> None:
    samples = make_samples(4, hints=False)  # rewards −1, 1, −1, 1
    sessions = ["a", "a", None, None]
    samples = [replace(sample, session=session) for sample, session in zip(samples, sessions, strict=True)]
    found = credit(samples, "rloo", "session")
    assert found[:2] == pytest.approx([-1.0, 1.0])
    assert found[2:] == credit(samples, "baseline")[2:]


def test_two_sources_of_reward_never_meet_in_a_group(make_samples: Samples) -> None:
    samples = alike(make_samples, [1.0, -1.0])
    samples[1] = replace(samples[1], reward_source="user")
    assert credit(samples, "rloo") == credit(samples, "baseline")


def test_the_baseline_counts_grouped_rows_too(make_samples: Samples) -> None:
    baseline = RunningBaseline(0.9)
    advantages_of(alike(make_samples, [1.0, 1.0]), baseline, "rloo", "prompt")
    assert baseline.evidence["judge"] == (3.0, 1.0)


def test_steps_are_standardised_by_place_whatever_the_estimator(make_samples: Samples) -> None:
    samples = [
        replace(sample, reward=reward, step=0) for sample, reward in zip(make_samples(2), (2.0, 0.0), strict=True)
    ]
    for estimator in ("baseline", *GROUPED):
        assert credit(samples, estimator) == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-4)


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=12), st.sampled_from(sorted(GROUPED)))
def test_group_advantages_add_up_to_nothing(rewards: list[float], estimator: str) -> None:
    found = GROUPED[estimator](torch.tensor(rewards, dtype=torch.float64), ["g"] * len(rewards))
    assert found.sum().item() == pytest.approx(0.0, abs=1e-6)


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=12))
def test_leave_one_out_is_the_mean_of_the_others(rewards: list[float]) -> None:
    found = GROUPED["rloo"](torch.tensor(rewards, dtype=torch.float64), ["g"] * len(rewards))
    for i, reward in enumerate(rewards):
        others = rewards[:i] + rewards[i + 1 :]
        assert found[i].item() == pytest.approx(reward - sum(others) / len(others), abs=1e-9)
