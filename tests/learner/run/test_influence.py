"""What a step would be without its heaviest user: exact for the gradient, and in the evidence of the version."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from world import Make, World

from burnish.adapters.registry import lifecycle
from burnish.journal import Journal
from burnish.learner.data.samples import Sample
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.work import Work

Samples = Callable[..., list[Sample]]


def gradient(trainer: Trainer) -> torch.Tensor:
    parameters = trainer.policy.parameters().values()
    found = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
    trainer.optimizer.zero_grad(set_to_none=True)
    return found.double()


def test_it_is_what_leaving_the_users_rows_out_does_to_the_gradient(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer()
    samples = [replace(s, user="loud" if i < 4 else f"user {i}", session=None) for i, s in enumerate(make_samples(8))]
    batch = trainer._prepare(Work(samples))
    assert {row.sample.user for row in batch.heaviest if row.sample is not None} == {"loud"}
    assert batch.facts["heaviest/tokens"] == pytest.approx(
        sum(row.weight * row.n_tokens for row in batch.heaviest)
        / sum(row.weight * row.n_tokens for row in batch.used if row.is_own)
    )
    plain = trainer._accumulate(batch.used, {})
    whole = gradient(trainer)
    found = trainer._accumulate(batch.used, {}, None, batch.heaviest)
    assert torch.allclose(gradient(trainer), whole, rtol=1e-4, atol=1e-8)
    assert found["loss"] == pytest.approx(plain["loss"], rel=1e-5) and "heaviest/gradient" not in plain

    for row in batch.heaviest:
        row.weight = 0.0
    trainer._accumulate(batch.used, {})
    rest = gradient(trainer)
    assert found["heaviest/gradient"] == pytest.approx(float((whole - rest) @ whole / (whole @ whole)), abs=1e-4)
    assert found["heaviest/cosine"] == pytest.approx(float(rest @ whole / (rest.norm() * whole.norm())), abs=1e-4)


def test_a_user_alone_has_no_others_to_compare_with(make_trainer: Make, make_samples: Samples) -> None:
    metrics = make_trainer().step(make_samples(4)).metrics
    assert not [name for name in metrics if name.startswith("heaviest/")]


def test_it_is_in_the_evidence_of_the_version(journal: Journal, tmp_path: Path, make_trainer: Make) -> None:
    world = World(journal, tmp_path, make_trainer)
    world.add(3, user="loud")
    world.add(1, user="other")
    assert world.loop.run_once()
    world.promote(1, 0)
    world.add(4, user="loud")
    assert world.loop.run_once()
    with journal.read() as session:
        first, second = (lifecycle.version(session, "agent", n).evidence for n in (1, 2))
    data: Any = first["data"]
    assert data["heaviest"].keys() == {"tokens", "gradient", "cosine"} and data["heaviest"]["tokens"] == 0.75
    assert "heaviest" not in second["data"]  # type: ignore[operator]
