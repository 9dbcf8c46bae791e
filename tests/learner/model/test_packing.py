"""Packed rows: shared beginnings are there once, and values and gradients equal those of padded rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import perturb
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from burnish.learner.data.rows import Text
from burnish.learner.data.samples import Sample
from burnish.learner.model import packing
from burnish.learner.model.forward import Forward
from burnish.learner.model.packing import N_LITTLE, Layout, attend, fill
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.model.predictions import Dense, Projected
from burnish.learner.run.trainer import Trainer

LONG = list(range(20, 60))
ROWS = [
    Text(LONG, [70, 71, 0]),
    Text([5, 6], [7, 0]),
    Text(LONG, [80, 0]),  # the same prompt
    Text([*LONG, 70, 71, 0, 9, 10], [11, 12, 13, 0]),  # the first row's next turn
    Text(LONG[:30], [90]),  # its beginning
    Text(LONG, [70, 71, 0]),  # the first row again
]


def test_a_shared_beginning_is_there_once() -> None:
    layout = Layout.of(ROWS, torch.device("cpu"))
    # 40 shared, the two rows after them, the next turn's rest, and the short row. The repeated row adds nothing.
    assert len(layout.ids) == 40 + 2 + 1 + 6 + 3
    assert len(layout.targets) == sum(len(row.completion_ids) for row in ROWS)
    for segment in layout.segments:
        assert layout.positions[segment.path].tolist() == list(range(len(segment.path)))


def test_a_short_common_beginning_is_not_shared() -> None:
    layout = Layout.of([Text([1, 2, 3], [4]), Text([1, 2, 3], [5, 6])], torch.device("cpu"))
    assert layout.positions.tolist() == [0, 1, 2, 0, 1, 2, 3]


def test_micro_batches_hold_every_row_once_within_the_budget() -> None:
    for budget in (1, 45, 60, 10**6):
        batches = fill(ROWS, budget)
        assert sorted(i for batch in batches for i in batch) == list(range(len(ROWS)))
        for batch in batches:
            assert len(batch) == 1 or len(Layout.of([ROWS[i] for i in batch], torch.device("cpu")).ids) <= budget


def test_packed_and_padded_agree_in_value_and_gradient(policy: Policy) -> None:
    perturb(policy)
    forward = Forward(policy.model)
    found = []
    for is_packed in (True, False):
        forward.is_packed = is_packed
        policy.model.zero_grad()
        predictions = forward.predictions(ROWS)
        assert isinstance(predictions, Projected if is_packed else Dense)
        ids = torch.tensor([i for row in ROWS for i in row.completion_ids])[:, None]
        logprobs = predictions.at_ids(ids)
        (logprobs * torch.linspace(-1.0, 1.0, len(ids))[:, None]).mean().backward()
        found.append((logprobs.detach(), [tensor.grad.clone() for tensor in policy.parameters().values()]))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-5)
    for packed, padded in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(packed, padded, atol=1e-5)


def test_the_whole_step_agrees_packed_and_padded_in_one_and_in_four_micro_batches(
    make_trainer: Callable[..., Trainer], make_samples: Callable[..., list[Sample]]
) -> None:
    samples, found = make_samples(8), []
    for is_packed, micro_tokens in ((True, 10**6), (True, 60), (False, 10**6)):
        trainer = make_trainer(micro_tokens)
        trainer.policy._forward.is_packed = is_packed
        perturb(trainer.policy, 0.05)
        gradients: dict[str, torch.Tensor] = {}

        def catch(trainer: Trainer = trainer, gradients: dict[str, torch.Tensor] = gradients) -> None:
            gradients.update({name: tensor.grad.clone() for name, tensor in trainer.policy.parameters().items()})

        trainer.optimizer.step = catch  # type: ignore[method-assign, assignment]
        found.append((trainer.step(samples).metrics, gradients))
    (whole, expected), *others = found
    for metrics, gradients in others:
        assert metrics["loss"] == pytest.approx(whole["loss"], abs=1e-5)
        assert metrics["entropy"] == pytest.approx(whole["entropy"], abs=1e-4)
        for name, gradient in expected.items():
            assert torch.allclose(gradients[name], gradient, atol=1e-5), name


def test_teacher_and_base_are_scored_in_the_same_layout(policy: Policy) -> None:
    perturb(policy)
    packed = policy.logprobs(ROWS, Weights.BASE)
    policy._forward.is_packed = False
    for one, two in zip(packed, policy.logprobs(ROWS, Weights.BASE), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_checkpointing_changes_no_gradient_and_sampling_keeps_its_cache(base_dir: Path) -> None:
    found = []
    for is_checkpointed in (False, True):
        policy = Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu", is_checkpointed=is_checkpointed)
        perturb(policy)
        policy.predictions(ROWS).at_ids(torch.full((15, 1), 7)).sum().backward()
        found.append([tensor.grad.clone() for tensor in policy.parameters().values()])
        assert not any(module.training for module in policy.model.modules())
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_sampling_goes_on_beside_packed_rows(policy: Policy) -> None:
    ids = torch.tensor([[0, 0, *LONG[:20]], LONG[:22]])
    mask = torch.tensor([[0, 0] + [1] * 20, [1] * 22])
    together = policy.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
    alone = policy.model.generate(input_ids=ids[:1, 2:], max_new_tokens=4, do_sample=False)
    assert together[0, 22:].tolist() == alone[0, 20:].tolist()


def test_a_sliding_window_is_kept(tmp_path: Path, base_dir: Path) -> None:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(base_dir).save_pretrained(tmp_path)
    policy = Policy.load(tmp_path, rank=4, alpha=8, device="cpu")
    assert policy._forward.is_packed


def test_a_model_that_changes_its_logits_stays_padded(base_dir: Path) -> None:
    class Scaled(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            found = super().forward(*args, **kwargs)
            found.logits = found.logits * 0.5
            return found

    policy = Policy.load(base_dir, rank=4, alpha=8, device="cpu")
    policy.model.get_base_model().__class__ = Scaled
    assert policy._forward.is_packed and not Forward(_unpacked(policy.model)).is_packed


def _unpacked(model: Any) -> Any:
    model.get_base_model().config._attn_implementation = "sdpa"
    return model


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_attention_written_out_is_sdpa_in_value_and_gradient(window: int | None, scaling: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    found = []
    size = len(Layout.of(ROWS, torch.device("cpu")).ids)
    query, key, value = (torch.randn(1, heads, size, 8, generator=generator).bfloat16() for heads in (6, 2, 2))
    for n_little in (N_LITTLE, 0):
        layout = Layout.of(ROWS, torch.device("cpu"), n_little)
        given = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
        made, _ = attend(None, *given, None, packed=layout, scaling=scaling, sliding_window=window)
        (made.float() * torch.linspace(-1.0, 1.0, size)[None, :, None, None]).sum().backward()
        found.append([made.detach().float(), *(tensor.grad.float() for tensor in given)])
    for written, kernel in zip(*found, strict=True):
        assert torch.allclose(written, kernel, atol=0.05)
        assert (written - kernel).abs().mean() < 0.005
    assert not torch.equal(found[0][0], found[1][0])  # two ways of computing it


def _as_the_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    **more: Any,
) -> Tensor:
    """FlashAttention over segments, by its documentation: the last query attends to the last key of its segment."""
    parts = []
    for i in range(len(query_bounds) - 1):
        q = query[query_bounds[i] : query_bounds[i + 1]].transpose(0, 1)
        k, v = (x[key_bounds[i] : key_bounds[i + 1]].transpose(0, 1) for x in (key, value))
        n, m = q.shape[1], k.shape[1]
        assert n <= longest_query and m <= longest_key
        distance = torch.arange(m - n, m)[:, None] - torch.arange(m)
        seen = (distance >= 0) & ((distance <= window_size[0]) | (window_size[0] < 0))
        found = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=seen, scale=scale, enable_gqa=True
        )
        parts.append(found[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("rows", [ROWS, ROWS[1:2], [ROWS[1], ROWS[4]]])
@pytest.mark.parametrize("window", [None, 7])
def test_one_kernel_for_all_segments_gives_what_each_segment_gives_alone(
    rows: list[Text], window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel needs a GPU, so its documented meaning stands in for it here."""
    device = torch.device("cpu")
    alone = Layout.of(rows, device)
    monkeypatch.setattr(packing, "_has_kernel", lambda device: True)
    monkeypatch.setattr(packing, "varlen_attn", _as_the_kernel)
    at_once = Layout.of(rows, device)
    assert alone.bounds is None and at_once.bounds is not None
    torch.manual_seed(0)
    n = len(alone.ids)
    q, k, v = (torch.randn(1, heads, n, 8, requires_grad=True) for heads in (4, 2, 2))
    found = []
    for layout in (alone, at_once):
        given = {"packed": layout, "scaling": 0.3, "sliding_window": window}
        if layout is at_once:
            monkeypatch.setattr(packing, "_HALF", (torch.float32,))
        out, _ = attend(None, q, k, v, None, **given)
        found.append((out.detach(), torch.autograd.grad((out * torch.linspace(-1, 1, 8)).sum(), (q, k, v))))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-6)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(one, other, atol=1e-5)
