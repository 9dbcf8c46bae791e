"""The head in tiles gives the values and gradients of whole distributions, without a tensor of tokens × vocabulary."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from burnish.learner.model import head
from burnish.learner.model.predictions import Dense, Projected


def drawn(n: int = 11, width: int = 6, n_vocab: int = 23) -> tuple[Tensor, Tensor]:
    """Hidden states and head in float64, with tiles of 5 × 7: several of them, and none fits evenly."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(n, width, dtype=torch.float64, generator=generator)
    weight = torch.randn(n_vocab, width, dtype=torch.float64, generator=generator)
    return hidden, weight


def whole(hidden: Tensor, weight: Tensor) -> Dense:
    return Dense(torch.log_softmax(hidden @ weight.T, -1))


@pytest.mark.parametrize("k", [1, 4])
def test_tiles_and_whole_distributions_agree(k: int) -> None:
    hidden, weight = drawn()
    ids = torch.randint(0, len(weight), (len(hidden), k), generator=torch.Generator().manual_seed(1))
    gradients = []
    tiled, dense = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    for each, predictions in (
        (tiled, Projected(tiled, weight)),
        (dense, whole(dense, weight)),
    ):
        found = predictions.at_ids(ids)
        (found.exp() * found).sum().backward()
        gradients.append((found.detach(), each.grad))
    assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-12)
    assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-12)


def test_entropy_and_top_agree() -> None:
    hidden, weight = drawn()
    tiled, dense = Projected(hidden, weight), whole(hidden, weight)
    assert torch.allclose(tiled.entropy(), dense.entropy(), atol=1e-12)
    assert torch.equal(tiled.top(9), dense.top(9))
    assert torch.equal(tiled.top(100), dense.top(100))


def test_some_places_can_be_asked_alone() -> None:
    hidden, weight = drawn()
    tiled, dense = Projected(hidden, weight), whole(hidden, weight)
    index = torch.tensor([7, 0, 7])
    ids = torch.tensor([[1, 2], [3, 4], [5, 22]])
    assert torch.allclose(tiled.at_ids(ids, index), dense.at_ids(ids, index), atol=1e-12)


def test_the_gradient_agrees_with_finite_differences() -> None:
    hidden, weight = drawn(n=6)
    ids = torch.tensor([[0, 1], [5, 5], [22, 3], [1, 9], [14, 15], [7, 6]])

    def logprobs(x: Tensor) -> Tensor:
        return Projected(x, weight).at_ids(ids)

    assert torch.autograd.gradcheck(logprobs, (hidden.requires_grad_(),), eps=1e-6, atol=1e-7)


def test_extreme_logits_stay_finite() -> None:
    hidden, weight = drawn()
    hidden = (hidden * 1e4).requires_grad_()
    predictions = Projected(hidden, weight)
    best = predictions.at_ids(predictions.top(1))
    best.sum().backward()
    assert torch.isfinite(best).all() and torch.isfinite(predictions.entropy()).all()
    assert hidden.grad is not None and torch.isfinite(hidden.grad).all()


def test_bf16_weights_give_exact_log_probs() -> None:
    """A bf16 product rounds the logits. Without a correction the error is in log Z wherever one token is likely."""
    generator = torch.Generator().manual_seed(5)
    hidden = (3.0 * torch.randn(40, 64, generator=generator)).bfloat16()
    weight = (0.4 * torch.randn(20_000, 64, generator=generator)).bfloat16()
    logits = hidden.float() @ weight.float().T
    exact = torch.log_softmax(logits, -1)
    rounded = torch.log_softmax((hidden @ weight.T).float(), -1)
    found = head.scan(hidden, weight, expected=True, top=3)
    assert torch.equal(found.top, exact.topk(3).indices)
    assert (found.log_z - torch.logsumexp(logits, -1)).abs().max() < 2e-3
    assert (rounded.max(-1).values - exact.max(-1).values).abs().max() > 2e-2, "the case shows nothing"
    assert torch.allclose(found.expected, exact.exp() @ weight.float(), atol=2e-2)
    likeliest = head.logprobs_at(hidden, weight, found, found.top)
    assert torch.allclose(likeliest, exact.topk(3).values, atol=2e-3)


def test_without_gradient_no_expectation_is_computed() -> None:
    hidden, weight = drawn()
    assert head.scan(hidden, weight, expected=False).expected is None


_AT_FULL_VOCABULARY = """
import torch
from burnish.learner.model.predictions import Projected

def kib(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

torch.set_num_threads(1)
weight = torch.randn(151_936, 32)
hidden = torch.randn(1500, 32, requires_grad=True)
ids = torch.randint(0, 151_936, (1500, 20))
Projected(torch.randn(8, 32, requires_grad=True), weight).at_ids(ids[:8]).sum().backward()
open("/proc/self/clear_refs", "w").write("5")
before = kib("VmRSS")
predictions = Projected(hidden, weight)
predictions.top(20)
predictions.at_ids(ids).sum().backward()
predictions.entropy()
print(kib("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's high-water mark")
def test_no_tensor_of_tokens_by_vocabulary_is_made() -> None:
    """1,500 × 151,936 in float32 would be 890 MiB. Log-probs, top 20, entropy and backward together stay below 32.

    Freed memory returns to the kernel at once, so that memory kept by the allocator is not counted.
    """
    at_once = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _AT_FULL_VOCABULARY], capture_output=True, text=True, check=True, env=at_once
    )
    assert int(done.stdout) < 32 * 1024
