"""Golden values of the estimators, and the order of reads and writes of the baseline."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.objectives.advantages import RunningBaseline, by_step, dr_grpo, grpo, rloo, scale_by_tokens

REWARDS = torch.tensor([1.0, 0.0, 1.0, 0.5])
GROUPS = ["a", "a", "a", "b"]


def test_group_advantages_have_the_golden_values() -> None:
    golden = {
        grpo: [0.57734925, -1.15469861, 0.57734925, 0.49999952],
        dr_grpo: [1 / 3, -2 / 3, 1 / 3, 0.5],
        rloo: [0.5, -1.0, 0.5, 0.5],
    }
    for estimator, expected in golden.items():
        assert estimator(REWARDS, GROUPS).tolist() == pytest.approx(expected, abs=1e-6)


def test_running_baseline_has_the_golden_values() -> None:
    baseline = RunningBaseline(decay=1.0)
    advantages = [baseline.advantage("c", reward) for reward in (1.0, 1.0, -1.0)]
    assert advantages == pytest.approx([0.5, 1 / 3, -3 / 4], abs=1e-12)
    assert baseline.value("c") == pytest.approx(3 / 5, abs=1e-12)


def test_baseline_is_read_before_it_is_written_and_clusters_are_separate() -> None:
    baseline = RunningBaseline(decay=0.9)
    assert baseline.advantage("c", -1.0) == -baseline.value("never seen")
    assert baseline.value("other") == 0.5
    before = baseline.value("c")
    baseline.forget()
    assert baseline.value("c") == pytest.approx(before)
    assert sum(baseline.evidence["c"]) == pytest.approx(0.9 * 3)


def test_baseline_survives_json_bit_for_bit() -> None:
    import json

    baseline = RunningBaseline(decay=0.9)
    for reward in (0.1, -0.7, 1.0):
        baseline.advantage("c", reward)
        baseline.forget()
    again = RunningBaseline(decay=0.5)
    again.restore(json.loads(json.dumps(baseline.state())))
    assert again == baseline


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=32), st.sampled_from([-1.0, 1.0]))
def test_single_signed_batch_is_bounded_by_the_floor(sizes: list[float], sign: float) -> None:
    advantages = torch.tensor(sizes) * 2 * sign
    scaled = scale_by_tokens(advantages, torch.ones(len(sizes)), floor=0.25)
    assert scaled.abs().max().item() <= 2 / 0.25 + 1e-6


def test_scale_is_measured_in_tokens() -> None:
    even = scale_by_tokens(torch.tensor([1.0, -1.0]), torch.tensor([1.0, 1.0]))
    uneven = scale_by_tokens(torch.tensor([1.0, -1.0]), torch.tensor([99.0, 1.0]))
    assert even.tolist() == [1.0, -1.0]
    assert uneven[0].item() == pytest.approx(1 / 0.25)


def test_steps_are_compared_with_those_at_their_place() -> None:
    rewards = torch.tensor([2.0, 0.0, 1.0, -1.0, 0.5])
    found = by_step(rewards, [0, 0, 1, 1, 7])
    root = 0.5**0.5
    assert found[:4].tolist() == pytest.approx([root, -root, root, -root], abs=1e-4)
    everyone = (0.5 - rewards.mean()) / rewards.std(correction=1)
    assert found[4].item() == pytest.approx(everyone.item(), abs=1e-4)  # alone at its place
    assert by_step(torch.tensor([-1.5]), [3]).tolist() == [-0.75]
    assert by_step(torch.tensor([1.0, 1.0]), [0, 0]).tolist() == [0.0, 0.0]
