"""Staleness and engine mismatch as separate factors, with the adapters of earlier versions."""

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import perturb

from burnish.errors import AdapterError
from burnish.learner.data.samples import Sample, SkipReason
from burnish.learner.model import adapter_file
from burnish.learner.model.past_version import logprobs_under
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives import divergences
from burnish.learner.objectives.off_policy import audit, describe, factors, verdict
from burnish.learner.run.trainer import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
RL_ONLY = {"distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}


def save(policy: Policy, directory: Path) -> Path:
    directory.mkdir()
    adapter_file.save(directory, policy.copy_adapter(), policy.config)
    return directory


def spoken(policy: Policy, samples: list[Sample], version: int) -> list[Sample]:
    """The samples as if the policy's present adapter were `version` and had sampled them, in an engine that agrees."""
    found = policy.logprobs(samples)
    return [
        replace(s, version=version, behaviour_logprobs=array("f", f.tolist()))
        for s, f in zip(samples, found, strict=True)
    ]


def test_values_by_hand() -> None:
    parts = factors(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0]), torch.tensor([-1.5, -2.5]))
    assert parts.lag.tolist() == [0.5, 0.0] and parts.mismatch.tolist() == [0.0, 0.5]
    facts = describe([parts])
    k3 = (math.exp(0.5) - 0.5 - 1.0) / 2
    assert facts["lag_k3"] == pytest.approx(k3) and facts["mismatch_k3"] == pytest.approx(k3)
    assert facts["mismatch_ratio"] == pytest.approx(math.exp(0.25))
    assert facts["mismatch_max"] == pytest.approx(0.5)
    assert facts["chi_squared"] == pytest.approx(math.e - 1.0)
    assert facts["truncated"] == 0.0
    assert describe([]) == {}


@given(st.lists(st.tuples(*[st.floats(-5.0, 0.0)] * 3), min_size=1, max_size=20))
def test_the_factors_add_up_to_the_ratio_and_their_k3_is_never_negative(rows: list[tuple[float, float, float]]) -> None:
    current, own, behaviour = torch.tensor(rows, dtype=torch.float64).T
    parts = factors(current, own, behaviour)
    assert torch.allclose(parts.lag + parts.mismatch, current - behaviour)
    facts = describe([parts])
    assert facts["lag_k3"] >= -1e-12 and facts["mismatch_k3"] >= -1e-12
    assert facts["mismatch_k3"] == pytest.approx(divergences.k3(behaviour, own).mean().item(), abs=1e-9)


@pytest.mark.parametrize(
    ("mismatch", "reason"),
    [
        ([0.0] * 4, None),
        ([0.5, -0.5, 0.3, -0.3], None),  # noise without a bias
        ([0.02] * 100, SkipReason.MISMATCH),
        ([-0.02] * 100, SkipReason.MISMATCH),
        ([0.0] * 999 + [5.0], SkipReason.VETOED),
        ([0.0] * 999 + [-10.0], SkipReason.VETOED),
    ],
)
def test_a_row_is_kept_by_its_mean_and_vetoed_by_its_worst_token(
    mismatch: list[float], reason: SkipReason | None
) -> None:
    assert verdict(torch.tensor(mismatch), 0.01) == reason


def test_an_earlier_version_is_scored_and_the_current_one_stays(
    policy: Policy, make_samples: Samples, tmp_path: Path
) -> None:
    samples = make_samples(4)
    perturb(policy)
    directory, before = save(policy, tmp_path / "v1"), policy.logprobs(samples)
    perturb(policy, seed=6)
    current, now = policy.copy_adapter(), policy.logprobs(samples)
    found = logprobs_under(policy, directory, samples)
    assert all(torch.equal(a, b) for a, b in zip(found, before, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(found, now, strict=True))
    assert all(torch.equal(current[name], tensor) for name, tensor in policy.parameters().items())
    assert all(tensor.requires_grad for tensor in policy.parameters().values())
    base = zip(logprobs_under(policy, None, samples), policy.logprobs(samples, Weights.BASE), strict=True)
    assert all(torch.equal(a, b) for a, b in base)


def test_an_adapter_that_cannot_be_read_leaves_the_current_one_alone(
    policy: Policy, make_samples: Samples, tmp_path: Path
) -> None:
    perturb(policy)
    current = policy.copy_adapter()
    with pytest.raises(AdapterError, match="cannot read"):
        logprobs_under(policy, tmp_path, make_samples(1))
    assert all(torch.equal(current[name], tensor) for name, tensor in policy.parameters().items())


def test_lag_is_the_policys_and_mismatch_the_engines(policy: Policy, make_samples: Samples, tmp_path: Path) -> None:
    perturb(policy, scale=0.05)
    directory, samples = save(policy, tmp_path / "v1"), spoken(policy, make_samples(6), 1)
    perturb(policy, scale=0.1, seed=6)
    lagging = audit(samples, policy, lambda version: directory, n_rows=6, band=0.01)
    assert lagging.facts["lag_k3"] > 1e-3 and lagging.facts["mismatch_k3"] < 1e-9 and not lagging.dropped
    policy.load_adapter(directory)
    noisy = [
        replace(s, behaviour_logprobs=array("f", [value - 0.05 for value in s.behaviour_logprobs])) for s in samples
    ]
    mistaken = audit(noisy, policy, lambda version: directory, n_rows=6, band=0.01)
    assert mistaken.facts["lag_k3"] < 1e-9 and mistaken.facts["mismatch_ratio"] == pytest.approx(
        math.exp(0.05), abs=1e-4
    )
    assert set(mistaken.dropped.values()) == {SkipReason.MISMATCH} and len(mistaken.dropped) == 6 and not mistaken.own


def test_wrong_versions_and_log_probs_are_detected(policy: Policy, make_samples: Samples, tmp_path: Path) -> None:
    """Negative controls: the base instead of the adapter, and log-probs of another temperature."""
    perturb(policy, scale=0.3)
    directory, samples = save(policy, tmp_path / "v1"), spoken(policy, make_samples(6), 1)
    cold = [replace(s, behaviour_logprobs=array("f", [value / 0.7 for value in s.behaviour_logprobs])) for s in samples]
    for wrong in ([replace(s, version=0) for s in samples], cold):
        assert len(audit(wrong, policy, lambda version: directory, n_rows=6, band=0.01).dropped) >= 4
    assert not audit(samples, policy, lambda version: directory, n_rows=6, band=0.01).dropped


def test_versions_that_are_gone_are_counted_and_greedy_rows_are_not_audited(
    policy: Policy, make_samples: Samples, tmp_path: Path
) -> None:
    samples = [replace(s, version=3 + i % 2) for i, s in enumerate(make_samples(6))]
    samples[0] = replace(samples[0], has_ratio=False)
    found = audit(samples, policy, lambda version: None if version == 3 else tmp_path, n_rows=9, band=0.01)
    assert (found.own, found.dropped) == ({}, {})
    assert found.facts == {"n_audited": 0.0, "n_gone": 5.0}


@pytest.mark.parametrize(("n_rows", "n_audited"), [(0, 0), (1, 1), (3, 3), (4, 4), (100, 8)])
def test_no_more_rows_are_audited_than_asked_for(
    policy: Policy, make_samples: Samples, n_rows: int, n_audited: int
) -> None:
    samples = [replace(sample, version=0) for sample in make_samples(8)]
    found = audit(samples, policy, lambda version: None, n_rows=n_rows, band=0.01)
    assert found.facts["n_audited"] == n_audited


def test_a_step_drops_what_the_audit_finds_and_reports_both_factors(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(**RL_ONLY, audit_rows=8, keep_duplicates=True)
    trainer.adapters = lambda version: None
    samples = [replace(sample, version=0) for sample in make_samples(8, hints=False)]
    samples[2] = replace(samples[2], behaviour_logprobs=array("f", [v - 0.2 for v in samples[2].behaviour_logprobs]))
    result = trainer.step(samples)
    assert result.dropped == {samples[2].interaction_id: SkipReason.MISMATCH}
    assert result.metrics["offpolicy/lag_k3"] == pytest.approx(0.0, abs=1e-6)
    assert result.metrics["offpolicy/n_audited"] == 8.0


def test_token_tis_clips_the_lag_and_truncates_the_mismatch(make_trainer: Make, make_samples: Samples) -> None:
    """Rows that an engine drew with a third of the probability count twice, not three times. The clip ignores it."""
    trainer = make_trainer(**RL_ONLY, correction="token_tis", max_mismatch=10.0)
    trainer.adapters = lambda version: None
    samples = [replace(sample, version=0) for sample in make_samples(6, hints=False)]
    rare = [
        replace(s, behaviour_logprobs=array("f", [v - math.log(3.0) for v in s.behaviour_logprobs])) for s in samples
    ]
    plain, weighed = trainer.step(samples), make_tis(make_trainer).step(rare)
    assert weighed.metrics["policy_gradient/clip_fraction"] == plain.metrics["policy_gradient/clip_fraction"] == 0.0
    assert weighed.metrics["loss/policy_gradient"] == pytest.approx(
        2.0 * plain.metrics["loss/policy_gradient"], abs=1e-4
    )
    assert weighed.metrics["policy_gradient/ratio"] == pytest.approx(3.0, abs=1e-3)


def make_tis(make_trainer: Make) -> Trainer:
    trainer = make_trainer(**RL_ONLY, correction="token_tis", max_mismatch=10.0)
    trainer.adapters = lambda version: None
    return trainer
