"""Learning from right replies: supervised, and by preference over the agent's reply."""

import math
from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tiny import perturb

from burnish.learner.data.right_replies import right_replies
from burnish.learner.data.rows import Row, Text, TokenBatch, count
from burnish.learner.data.samples import RightKind, Sample
from burnish.learner.data.shuffled_control import ShuffledSignals
from burnish.learner.model.policy import Weights
from burnish.learner.objectives.losses import preference_loss
from burnish.learner.objectives.preference import Preference
from burnish.learner.run.trainer import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
OFF = {"rl_weight": 0.0, "distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}
RIGHT = array("i", [40, 41, 42, 0])


def with_right(samples: list[Sample], kind: RightKind = RightKind.CORRECTION) -> list[Sample]:
    """Every second sample has a right reply."""
    return [replace(s, demonstration_ids=RIGHT, right_kind=kind) if i % 2 == 0 else s for i, s in enumerate(samples)]


def logprob(trainer: Trainer, rows: list[Text]) -> float:
    return float(torch.cat(trainer.policy.logprobs(rows)).sum())


def test_supervised_learning_makes_right_replies_likelier(make_trainer: Make, make_samples: Samples) -> None:
    trainer, samples = (
        make_trainer(**OFF | {"sft_weight": 1.0}),
        with_right(make_samples(4, hints=False), RightKind.DEMONSTRATION),
    )
    right = [Text(s.prompt_ids, RIGHT) for s in samples if s.demonstration_ids is not None]
    before = logprob(trainer, right)
    result = trainer.step(samples)
    assert result.trained == (samples[0].interaction_id, samples[2].interaction_id)
    assert result.idle == (samples[1].interaction_id, samples[3].interaction_id)
    assert result.metrics["loss/sft"] == pytest.approx(-before / 8, abs=1e-4)
    assert logprob(trainer, right) > before


def test_a_correction_is_not_learned_word_by_word(make_trainer: Make, make_samples: Samples) -> None:
    result = make_trainer(**OFF | {"sft_weight": 1.0}).step(with_right(make_samples(4, hints=False)))
    assert not result.is_update and len(result.idle) == 4


def test_preference_makes_the_correction_likelier_and_the_reply_less_so(
    make_trainer: Make, make_samples: Samples
) -> None:
    trainer, samples = (
        make_trainer(**OFF | {"dpo_weight": 1.0}, learning_rate=1e-3),
        with_right(make_samples(4, hints=False)),
    )
    pairs = [s for s in samples if s.demonstration_ids is not None]
    right = [Text(s.prompt_ids, RIGHT) for s in pairs]
    replied = [Text(s.prompt_ids, s.completion_ids) for s in pairs]
    before = logprob(trainer, right), logprob(trainer, replied)
    result = trainer.step(samples)
    assert result.trained == tuple(s.interaction_id for s in pairs)
    # a fresh adapter is the base: every margin is 0
    assert result.metrics["loss/dpo"] == pytest.approx(math.log(2.0), abs=1e-5)
    assert (result.metrics["dpo/n_pairs"], result.metrics["dpo/margin"]) == (2.0, 0.0)
    assert logprob(trainer, right) > before[0] and logprob(trainer, replied) < before[1]


@pytest.mark.parametrize("micro", [1, 10])
def test_loss_and_gradient_are_dpos_own_however_rows_are_packed(
    make_trainer: Make, make_samples: Samples, micro: int
) -> None:
    """Against the loss written out over whole pairs, off the reference."""
    beta, trainer = 0.3, make_trainer()
    policy = trainer.policy
    perturb(policy)
    samples = with_right(make_samples(4, hints=False))
    live, right = [Row.of(sample) for sample in samples], right_replies(samples)
    objective = Preference(beta=beta, reference=Weights.BASE)
    objective.stamp([*live, *right], policy)
    used = [row for row in [*live, *right] if row.streams]
    assert len(used) == 4

    flat = [row for pair in zip(right, live[0::2], strict=True) for row in pair]
    base = policy.logprobs(flat, Weights.BASE)
    found = torch.split(TokenBatch(flat, policy.distributions(flat)).sampled, [row.n_tokens for row in flat])
    gains = [(now - before).sum() for now, before in zip(found, base, strict=True)]
    exact = preference_loss(torch.stack(gains[0::2]) - torch.stack(gains[1::2]), beta).mean()
    exact.backward()  # type: ignore[no-untyped-call]
    wanted = {name: tensor.grad.clone() for name, tensor in policy.parameters().items() if tensor.grad is not None}
    for tensor in policy.parameters().values():
        tensor.grad = None

    total = 0.0
    for start in range(0, len(used), micro):
        rows = used[start : start + micro]
        term = objective.term(TokenBatch(rows, policy.distributions(rows))).total / count(used, objective.stream)
        term.backward()  # type: ignore[no-untyped-call]
        total += term.item()
    assert total == pytest.approx(exact.item(), abs=1e-5)
    for name, tensor in policy.parameters().items():
        assert tensor.grad is not None and torch.allclose(tensor.grad, wanted[name], atol=1e-5), name


def test_only_corrections_that_change_something_are_pairs(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(**OFF | {"dpo_weight": 1.0})
    shown = with_right(make_samples(4, hints=False), RightKind.DEMONSTRATION)
    same = [
        replace(s, demonstration_ids=s.completion_ids, right_kind=RightKind.CORRECTION)
        for s in make_samples(4, hints=False)
    ]
    for samples in (shown, same):
        result = trainer.step(samples)
        assert not result.is_update and len(result.idle) == 4


def test_the_teacher_may_be_the_reference(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(**OFF | {"dpo_weight": 1.0, "dpo_reference": "teacher"})
    assert trainer.step(with_right(make_samples(2, hints=False))).metrics["loss/dpo"] == pytest.approx(
        math.log(2.0), abs=1e-5
    )


def test_right_replies_are_no_anchors_and_change_nothing_without_an_objective_for_them(
    make_trainer: Make, make_samples: Samples
) -> None:
    plain, corrected = make_trainer(), make_trainer()
    plain.step(make_samples(6))
    corrected.step(with_right(make_samples(6)))
    assert all(torch.equal(t, corrected.policy.parameters()[name]) for name, t in plain.policy.parameters().items())


def test_the_shuffled_control_leaves_right_replies_out(make_samples: Samples) -> None:
    shuffled = ShuffledSignals().shuffle(with_right(make_samples(4)), torch.Generator().manual_seed(1))
    assert not right_replies(shuffled)
