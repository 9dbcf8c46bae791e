"""A step goes no further than its trust region, and the same way."""

from collections.abc import Callable

import pytest
import torch

from learner.kl import k3
from learner.rows import Row
from learner.samples import Sample
from learner.step import Trainer
from learner.trust_region import SLACK, TrustRegion

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
RL_ONLY = {"distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}


def moved(trainer: Trainer, samples: list[Sample]) -> tuple[dict[str, torch.Tensor], float]:
    """The way that one step takes each tensor, and its KL over the samples' tokens (nats per token)."""
    begin, spoken = trainer.policy.copy_adapter(), torch.cat(trainer.policy.logprobs(samples)).double()
    assert trainer.step(samples).is_update
    after = torch.cat(trainer.policy.logprobs(samples)).double()
    way = {name: tensor - begin[name] for name, tensor in trainer.policy.copy_adapter().items()}
    return way, float(k3(spoken, after).mean())


@pytest.mark.parametrize("passes", [1, 3])
def test_a_step_that_goes_too_far_is_shortened_and_not_turned(make_trainer: Make, make_samples: Samples, passes: int) -> None:
    samples = make_samples(6)
    whole, wanted = moved(make_trainer(**RL_ONLY, passes=passes, learning_rate=0.1), samples)
    limit = wanted / 50
    held, found = moved(make_trainer(**RL_ONLY, passes=passes, learning_rate=0.1, max_step_kl=limit), samples)
    assert limit / 4 < found <= SLACK * limit * 1.001
    shares = [(held[name] / way)[way.abs() > 1e-3] for name, way in whole.items()]
    share = torch.cat(shares)
    assert share.numel() and 0 < share.mean() < 0.5
    assert torch.allclose(share, share.mean().expand_as(share), atol=1e-3)


def test_what_was_wanted_and_what_was_left_is_told(make_trainer: Make, make_samples: Samples) -> None:
    samples = make_samples(6)
    _, wanted = moved(make_trainer(**RL_ONLY, learning_rate=0.1), samples)
    metrics = make_trainer(**RL_ONLY, learning_rate=0.1, max_step_kl=wanted / 50).step(samples).metrics
    assert metrics["trust/wanted"] == pytest.approx(wanted, rel=1e-3)
    assert metrics["trust/kl"] <= SLACK * wanted / 50
    assert 0 < metrics["trust/share"] < 0.5


def test_a_step_within_it_is_left_as_it_is_bit_for_bit(make_trainer: Make, make_samples: Samples) -> None:
    samples = make_samples(6)
    free, held = make_trainer(**RL_ONLY), make_trainer(**RL_ONLY, max_step_kl=100.0)
    free.step(samples)
    metrics = held.step(samples).metrics
    assert metrics["trust/share"] == 1.0 and metrics["trust/kl"] == metrics["trust/wanted"] > 0
    assert all(torch.equal(t, held.policy.parameters()[name]) for name, t in free.policy.parameters().items())


def test_without_a_bound_nothing_is_measured(make_trainer: Make, make_samples: Samples) -> None:
    assert not [name for name in make_trainer(**RL_ONLY).step(make_samples(6)).metrics if name.startswith("trust/")]


def test_a_step_so_far_out_that_its_kl_is_infinite_is_brought_back(make_trainer: Make, make_samples: Samples) -> None:
    trainer, samples = make_trainer(), make_samples(6)
    region = TrustRegion(trainer.policy, [Row.of(sample) for sample in samples], 0.01)
    begin = trainer.policy.copy_adapter()
    generator = torch.Generator().manual_seed(0)
    trainer.policy.take_adapter({name: t + 30 * torch.randn(t.shape, generator=generator) for name, t in begin.items()})
    metrics = region.keep()
    assert metrics["trust/share"] < 0.01
    assert metrics["trust/kl"] < metrics.get("trust/wanted", float("inf"))


def test_rows_that_nobody_spoke_bound_nothing(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer()
    sample = make_samples(1)[0]
    region = TrustRegion(trainer.policy, [Row(sample.prompt_ids, sample.completion_ids, sample.temperature)], 0.01)
    assert region.keep() == {}


def test_a_failure_while_it_is_measured_takes_the_step_back(
    make_trainer: Make, make_samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(**RL_ONLY, max_step_kl=0.01)
    before = trainer.policy.copy_adapter()

    def fails(self: TrustRegion) -> dict[str, float]:
        raise MemoryError

    monkeypatch.setattr(TrustRegion, "keep", fails)
    with pytest.raises(MemoryError):
        trainer.step(make_samples(6))
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.policy.parameters().items())
    assert not trainer.tensors()
