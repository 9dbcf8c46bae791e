"""A step's length: the KL that it reports is the exact one, and it meets its target for any learning rate."""

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from burnish.learner.data.rows import Place, Row, TokenBatch
from burnish.learner.model.policy import Policy
from burnish.learner.model.ranks import Ranks
from burnish.learner.run.trainer import Trainer
from burnish.learner.step.length import LEAST, NEAR, StepLength, signal

Make = Callable[..., Trainer]


def before(policy: Policy, rows: Sequence[Row], budget: int = 512) -> StepLength:
    """The policy as it is, as the first pass of a step keeps it."""
    length = StepLength(policy, Ranks())
    for indices in policy.batches(rows, budget):
        micro = [rows[i] for i in indices]
        length.keep(TokenBatch(micro, policy.predictions(micro)))
    return length


def nudge(policy: Policy, size: float) -> None:
    """Move the adapter in a fixed direction."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(size * torch.randn(tensor.shape, generator=generator))


@pytest.mark.parametrize("is_packed", [True, False])
def test_the_kl_is_the_mean_over_all_tokens_and_the_whole_vocabulary(
    policy: Policy, make_samples: Any, is_packed: bool
) -> None:
    rows = [Row.of(sample) for sample in make_samples(5)]
    policy._forward.is_packed = is_packed
    with torch.no_grad():
        first = policy.distributions(rows)
    anchor = Row([1, 2, 3], [4, 5])
    length = before(policy, [*rows, anchor], 64)
    assert length.kl() == pytest.approx(0.0, abs=1e-6)
    nudge(policy, 0.05)
    with torch.no_grad():
        after = policy.distributions(rows)
    exact = (first.exp() * (first - after)).sum(-1).mean()
    assert exact > 1e-3
    assert length.kl() == pytest.approx(float(exact), rel=1e-3)


def test_the_change_of_each_replys_log_prob_is_the_exact_one(policy: Policy, make_samples: Any) -> None:
    rows = [Row.of(sample) for sample in make_samples(5)]
    first = [float(each.mean()) for each in policy.logprobs(rows)]
    length = before(policy, [*rows, Row([1, 2, 3], [4, 5])], 64)
    nudge(policy, 0.05)
    length.fit(0.02)
    after = [float(each.mean()) for each in policy.logprobs(rows)]
    changes = length.changes()
    assert len(changes) == len(rows)
    for row, old, new in zip(rows, first, after, strict=True):
        assert row.sample is not None
        assert changes[row.sample.interaction_id] == pytest.approx(new - old, abs=1e-4)
    assert any(abs(change) > 1e-3 for change in changes.values())


@pytest.mark.parametrize("size", [1e-4, 0.02, 0.5, 50.0])
@pytest.mark.parametrize("target", [0.002, 0.05])
def test_a_step_of_any_size_is_brought_to_its_target(
    policy: Policy, make_samples: Any, size: float, target: float
) -> None:
    length = before(policy, [Row.of(sample) for sample in make_samples(6)])
    nudge(policy, size)
    scale, found = length.fit(target)
    assert NEAR[0] * target <= found <= NEAR[1] * target
    assert length.kl() == pytest.approx(found)
    assert (scale > 1.0) is (size < 0.02) or size == 0.02


@pytest.mark.parametrize("power", [2, 4, 6])
@pytest.mark.parametrize("first", [1e-4, 0.009, 3.0])
def test_a_kl_that_grows_faster_than_the_square_meets_its_target(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, power: int, first: float
) -> None:
    length, scales = StepLength(policy, Ranks()), [1.0]
    monkeypatch.setattr(length, "_set", lambda after, scale: scales.append(scale))
    monkeypatch.setattr(length, "kl", lambda: first * scales[-1] ** power)
    scale, found = length.fit(0.05)
    assert NEAR[0] * 0.05 <= found <= NEAR[1] * 0.05
    assert scale == scales[-1] and len(scales) <= 6


def test_a_step_that_moves_nothing_stays_where_it_is(policy: Policy, make_samples: Any) -> None:
    adapter = policy.copy_adapter()
    before(policy, [Row.of(sample) for sample in make_samples(2)]).fit(0.05)
    assert all(torch.equal(tensor, adapter[name]) for name, tensor in policy.copy_adapter().items())


@pytest.mark.parametrize("learning_rate", [1e-5, 1e-3, 1e-1])
def test_the_trainer_meets_the_target_whatever_its_learning_rate(
    make_trainer: Make, make_samples: Any, learning_rate: float
) -> None:
    trainer = make_trainer(step_kl=0.02, learning_rate=learning_rate, num_iterations=2)
    for _ in range(3):
        metrics = trainer.step(make_samples(8)).metrics
        assert NEAR[0] <= metrics["step_kl"] / metrics["step_kl_target"] <= NEAR[1]
    assert metrics["step_scale"] == pytest.approx(1.0, abs=0.6)  # the rate has followed


def test_a_step_in_which_little_was_wrong_moves_little(make_trainer: Make, make_samples: Any) -> None:
    trainer = make_trainer(step_kl=0.02, distill_weight=0.0)
    for _ in range(6):
        liked = trainer.step(make_samples(8, reward=1.0, hints=False)).metrics
    blamed = trainer.step(make_samples(8, reward=-1.0, hints=False)).metrics
    assert liked["signal"] < 0.3 < blamed["signal"]
    assert liked["step_kl_target"] == pytest.approx(0.02 * liked["signal"])
    assert liked["step_kl"] < 0.5 * blamed["step_kl"]


def test_a_step_says_that_blamed_replies_became_less_likely(make_trainer: Make, make_samples: Any) -> None:
    options: dict[str, Any] = {"distill_weight": 0.0, "anchor_weight": 0.0, "learning_rate": 1e-3}
    samples = make_samples(8, reward=-1.0, hints=False)
    changes = make_trainer(step_kl=0.02, **options).step(samples).logprob_changes
    assert set(changes) == {sample.interaction_id for sample in samples}
    assert sum(changes.values()) < 0.0
    assert make_trainer(step_kl=0.0, **options).step(samples).logprob_changes == {}  # the length was not measured


def test_half_the_step_is_a_quarter_of_the_kl(make_trainer: Make, make_samples: Any) -> None:
    trainer = make_trainer(step_kl=0.02)
    found = trainer.step(make_samples(8), rate=0.5).metrics
    assert found["step_kl_target"] == pytest.approx(0.02 * found["signal"] / 4.0)


def test_a_step_is_never_shorter_than_can_be_measured(make_trainer: Make, make_samples: Any, base_dir: Path) -> None:
    trainer = make_trainer(step_kl=0.05)
    assert trainer.step(make_samples(8), rate=0.01).metrics["step_kl_target"] < 1e-5, "fp32 measures very short steps"
    rounded = Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu", is_bfloat16=True)
    trainer = Trainer(rounded, trainer.recipe)
    trainer.step(make_samples(8))
    pace = trainer.pace
    for _ in range(4):  # rounding hid how short these were, and each one made the next shorter
        metrics = trainer.step(make_samples(8), rate=0.01).metrics
        assert metrics["step_kl_target"] == LEAST[torch.bfloat16]
        assert NEAR[0] <= metrics["step_kl"] / metrics["step_kl_target"] <= NEAR[1]
    assert trainer.pace > 0.01 * pace


def test_pace_survives_a_restart_and_a_reset_forgets_it(make_trainer: Make, make_samples: Any) -> None:
    trainer = make_trainer(step_kl=0.02, learning_rate=1e-5)
    trainer.step(make_samples(8))
    assert trainer.pace > 2.0
    other = make_trainer(step_kl=0.02, learning_rate=1e-5)
    other.restore(trainer.state())
    assert other.pace == trainer.pace
    trainer.reset()
    assert trainer.pace == 1.0


def test_signal_counts_members_of_groups_by_their_advantage() -> None:
    """`behaviour` streams say how a reply came about and not what it teaches."""
    rows = [Row([1], [2, 3], place=Place("g", 0.5, array("f", [-1.0, -1.0]))) for _ in range(3)]
    for row, advantage in zip(rows, (0.6, -0.1, 0.0), strict=True):
        row.streams["group_advantages"] = torch.full((2,), advantage)
        row.streams["group_behaviour"] = torch.full((2,), -1.0)
    assert signal(rows) == pytest.approx((1.0 + 0.2 + 0.0) / 3)


def test_signal_counts_hints_in_full_and_rewards_by_their_surprise(make_samples: Any) -> None:
    hinted, surprised, expected, idle = (Row.of(sample) for sample in make_samples(4))
    hinted.streams["teacher_top"] = torch.zeros(hinted.n_tokens, 3)
    surprised.streams["advantages"] = torch.full((surprised.n_tokens,), -0.5)
    expected.streams["advantages"] = torch.full((expected.n_tokens,), 0.05)
    sizes = [row.n_tokens for row in (hinted, surprised, expected, idle)]
    wanted = (sizes[0] + sizes[1] + 0.1 * sizes[2]) / sum(sizes)
    assert signal([hinted, surprised, expected, idle]) == pytest.approx(wanted)
    assert signal([]) == 1.0
