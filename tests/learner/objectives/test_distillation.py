"""The divergences keep their bounds, their equalities and their exact gradients."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.learner.objectives import divergences
from burnish.learner.objectives.divergences import cap_per_token, reverse_kl, tail_reverse_kl, token_distillation
from burnish.learner.objectives.losses import clipped_policy_loss


def draw(seed: int, *shape: int, scale: float = 2.0) -> torch.Tensor:
    logits = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale
    return torch.log_softmax(logits, -1)


def top(student: torch.Tensor, teacher: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = student.topk(k, -1)
    return values, teacher.gather(-1, ids)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 64), st.floats(0.1, 4.0), st.data())
def test_tail_never_exceeds_the_exact_divergence(seed: int, n_vocab: int, scale: float, data: st.DataObject) -> None:
    student, teacher = draw(seed, 10, n_vocab, scale=scale), draw(seed + 1, 10, n_vocab, scale=scale)
    k = data.draw(st.integers(1, n_vocab - 1))
    assert (tail_reverse_kl(*top(student, teacher, k)) <= reverse_kl(student, teacher) + 1e-6).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 64))
def test_tail_is_exact_when_one_token_is_left_over(seed: int, n_vocab: int) -> None:
    student, teacher = draw(seed, 10, n_vocab, scale=1.0), draw(seed + 1, 10, n_vocab, scale=1.0)
    exact = reverse_kl(student, teacher)
    assert torch.allclose(tail_reverse_kl(*top(student, teacher, n_vocab - 1)), exact, atol=1e-5)


def test_identical_teacher_teaches_nothing() -> None:
    logits = torch.randn(4, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    student = torch.log_softmax(logits, -1)
    loss = tail_reverse_kl(*top(student, student.detach(), 8)).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert logits.grad is not None
    assert logits.grad.abs().max().item() < 1e-12


@pytest.mark.parametrize("k", [2, 5, 8])
def test_gradients_agree_with_finite_differences(k: int) -> None:
    teacher = draw(5, 3, 8)
    logits = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    ids = logits.topk(min(k, 7), -1).indices

    def loss(x: torch.Tensor) -> torch.Tensor:
        student = torch.log_softmax(x, -1)
        if k == 8:
            return reverse_kl(student, teacher).sum()
        return tail_reverse_kl(student.gather(-1, ids), teacher.gather(-1, ids)).sum()

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-4)


def test_cap_bounds_the_value_and_keeps_the_direction() -> None:
    divergence = torch.tensor([0.5, 8.0], requires_grad=True)
    capped = cap_per_token(divergence, 2.0)
    capped.sum().backward()
    assert capped.tolist() == pytest.approx([0.5, 2.0])
    assert divergence.grad is not None
    assert divergence.grad.tolist() == pytest.approx([1.0, 0.25])


@pytest.mark.parametrize("estimator", ["policy_loss", "k2", "token_distillation"])
def test_expected_estimator_is_the_exact_gradient_on_an_enumerable_policy(estimator: str) -> None:
    """V = 5, T = 2: over all 25 sequences, the one-sample estimators add up to the gradient of the sequence KL."""
    n_vocab = 5
    generator = torch.Generator().manual_seed(7)
    first = torch.randn(n_vocab, dtype=torch.float64, generator=generator).requires_grad_()
    second = torch.randn(n_vocab, n_vocab, dtype=torch.float64, generator=generator).requires_grad_()
    teacher = draw(8, 1 + n_vocab, n_vocab)
    student = torch.cat([torch.log_softmax(first, -1)[None], torch.log_softmax(second, -1)])
    pairs = list(itertools.product(range(n_vocab), repeat=2))
    student_pairs = torch.stack([torch.stack([student[0, a], student[1 + a, b]]) for a, b in pairs])
    teacher_pairs = torch.stack([torch.stack([teacher[0, a], teacher[1 + a, b]]) for a, b in pairs])
    sequence, reference = student_pairs.sum(-1), teacher_pairs.sum(-1)
    exact = torch.autograd.grad((sequence.exp() * (sequence - reference)).sum(), (first, second), retain_graph=True)

    weights = sequence.exp().detach()
    if estimator == "k2":
        expected = (weights * divergences.k2(sequence, reference)).sum()
    elif estimator == "token_distillation":
        # each token is compared with the teacher at its own state; the return to go makes the sequence's gradient of it
        later = (student_pairs - teacher_pairs).detach()[:, 1:]
        per_token = token_distillation(student_pairs, teacher_pairs, math.inf)
        expected = (weights[:, None] * per_token).sum() + (weights * later[:, 0] * student_pairs[:, 0]).sum()
    else:
        advantages = -(sequence - reference).detach()[:, None]
        clip = {"clip_low": 0.2, "clip_high": 0.28}
        per_token = clipped_policy_loss(student_pairs, student_pairs.detach(), advantages, **clip).loss
        expected = (weights[:, None] * per_token).sum()
    got = torch.autograd.grad(expected, (first, second))
    for found, true in zip(got, exact, strict=True):
        assert torch.allclose(found, true, atol=1e-6)


def test_token_distillation_is_worked_by_hand() -> None:
    student = torch.tensor([-1.0, -0.5, -4.0], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([-0.5, -3.5, -4.0], dtype=torch.float64)
    losses = token_distillation(student, teacher, cap=2.0)
    assert losses.tolist() == pytest.approx([0.5 * 1.0, -2.0 * 0.5, 0.0])  # A = 0.5, −3 held at −2, 0
    losses.sum().backward()
    assert student.grad is not None
    assert student.grad.tolist() == pytest.approx([-0.5, 2.0, 0.0])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 16))
def test_expected_token_distillation_is_the_gradient_of_the_reverse_kl(seed: int, n_vocab: int) -> None:
    logits = torch.randn(n_vocab, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    student, teacher = torch.log_softmax(logits, -1), draw(seed + 1, n_vocab)
    exact = torch.autograd.grad(reverse_kl(student, teacher), logits, retain_graph=True)[0]
    expected = (student.detach().exp() * token_distillation(student, teacher, math.inf)).sum()
    assert torch.allclose(torch.autograd.grad(expected, logits)[0], exact, atol=1e-9)
