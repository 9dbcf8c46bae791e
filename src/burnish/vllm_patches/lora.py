"""Patches for LoRA on a CPU: a request without an adapter gets none, and adapters cost a small part of a step.

vLLM marks a request without an adapter with slot -1, and its PyTorch operations index the adapters' weights with that.
In a batch with adapters, the base answered with the adapter in the last slot (46 of 48 greedy answers differed). The
frozen base judges, so its verdicts were partly the policy's own. With the patch, slot -1 adds nothing.

The same operations copy the adapter's two matrices once for every *token* in every layer. In a run of the sandbox they
took 64 % of the worker's time; the base's own products took a tenth. With the patch, a layer keeps the matrices of all
its slots and slices in one piece, and a step takes two products a layer, because with a small model the number of
operations is what costs.

The matrices are kept in fp32, so that a step with few tokens converts nothing.

vLLM wraps the embedding and the head too. It gathers their B, [tokens, vocabulary, rank], also if no adapter has one.
With the patch this happens only for adapters that do.

GPUs have kernels of their own, which leave slot -1 out and copy nothing.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
from vllm.lora.layers.column_parallel_linear import MergedColumnParallelLinearWithLoRA
from vllm.lora.layers.logits_processor import LogitsProcessorWithLoRA
from vllm.lora.layers.vocab_parallel_embedding import VocabParallelEmbeddingWithLoRA
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

FEW = 64
"""Up to this many tokens of a step, all slots are multiplied together."""
FP32_ROWS = 16
"""Up to this many rows, a product in fp32 is faster than one in bf16."""

_shrink = lora_ops.bgmv_shrink
_update_metadata = PunicaWrapperCPU.update_metadata
_add_lora_logits = PunicaWrapperCPU.add_lora_logits
_add_lora_embedding = PunicaWrapperCPU.add_lora_embedding


class Joined(tuple[Any, ...]):
    """vLLM's tensors of a layer, one a slice, as views of `whole` [slots, slices, rank, hidden or Σ outputs]."""

    whole: Any

    def __init__(self, _: Sequence[Any] = ()) -> None:
        self._views: dict[tuple[int, int], Any] = {}

    def of(self, slots: slice) -> Any:
        """[slots · slices · rank, hidden or Σ outputs], a view, made once."""
        ends = slots.start, slots.stop
        if ends not in self._views:
            self._views[ends] = self.whole[slots].flatten(0, 2)
        return self._views[ends]


def joined(a: Sequence[Any], b: Sequence[Any]) -> tuple[Joined, Joined]:
    """The same numbers in one piece each, in fp32. In B [slots, 1, outputs, rank] each slice has its own columns, with
    zeros elsewhere.
    """
    n_slots, _, rank, hidden = a[0].shape
    whole_a = torch.zeros(n_slots, len(a), rank, hidden)
    whole_b = torch.zeros(n_slots, len(b), rank, sum(each.shape[2] for each in b))
    views_a, views_b, begin = [], [], 0
    for i, (left, right) in enumerate(zip(a, b, strict=True)):
        end = begin + right.shape[2]
        views_a.append(whole_a[:, i : i + 1])
        views_b.append(whole_b[:, i : i + 1, :, begin:end].transpose(2, 3))
        views_a[i].copy_(left)
        views_b[i].copy_(right)
        begin = end
    found_a, found_b = Joined(views_a), Joined(views_b)
    found_a.whole, found_b.whole = whole_a, whole_b
    return found_a, found_b


def joining(create: Callable[..., None]) -> Callable[..., None]:
    """A layer's `create_lora_weights` with tensors in one piece, unless several workers share an adapter's rank."""

    @functools.wraps(create)
    def created(self: Any, *given: Any, **named: Any) -> None:
        create(self, *given, **named)
        if self.lora_a_stacked[0].shape[2] == self.lora_b_stacked[0].shape[3]:
            self.lora_a_stacked, self.lora_b_stacked = joined(self.lora_a_stacked, self.lora_b_stacked)

    return created


class Part:
    """The slots of a step that are multiplied together, from `first` up to `stop`. `slots` has each token's slot, -1
    for none.
    """

    def __init__(self, slots: Sequence[int], first: int, stop: int) -> None:
        mine = [row for row, slot in enumerate(slots) if first <= slot < stop]
        self.slots = slice(first, stop)
        self.rows = slice(mine[0], mine[-1] + 1)
        """From the first slot to the last: cheaper than gathering a few and scattering them again."""
        within = slots[self.rows]
        self._of = None if stop == first + 1 and len(within) == len(mine) else torch.tensor(within).unsqueeze(1)
        self._others: dict[int, Any] = {}

    def others(self, width: int) -> Any:
        """[rows, slots · width]: True if a column belongs to another slot than the token's. None if none does. `width`:
        columns of a slot.
        """
        if self._of is not None and width not in self._others:
            of_another = self._of != torch.arange(self.slots.start, self.slots.stop)
            self._others[width] = of_another.repeat_interleave(width, 1)
        return self._others.get(width)


def parts(slots: Sequence[int]) -> list[Part]:
    """All tokens of a small step together, because each operation costs more than its work. A large step slot by
    slot."""
    used = sorted({*slots} - {-1})
    if used and len(slots) <= FEW:
        return [Part(slots, used[0], used[-1] + 1)]
    return [Part(slots, slot, slot + 1) for slot in used]


def update_metadata(self: Any, *given: Any, **named: Any) -> None:
    """vLLM's own, called once a step. It also keeps the slots of the step's tokens for all layers."""
    _update_metadata(self, *given, **named)
    self.parts = parts(self.token_lora_indices.tolist())


def add_lora_linear(
    self: Any,
    y: Any,
    x: Any,
    lora_a_stacked: Sequence[Any],
    lora_b_stacked: Sequence[Any],
    scale: float,
    *_: Any,
    **__: Any,
) -> None:
    """`y` [tokens, Σ outputs] += scale · (x [tokens, hidden] · A [rank, hidden]ᵀ) · B [outputs, rank]ᵀ of each token's
    slot.

    All slices at once. Between the two products numbers are fp32, as in vLLM's own operations.
    """
    if not self.parts:
        return
    if not (isinstance(lora_a_stacked, Joined) and isinstance(lora_b_stacked, Joined)):
        lora_a_stacked, lora_b_stacked = joined(lora_a_stacked, lora_b_stacked)
    flat, inputs = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
    for part in self.parts:
        a, b = lora_a_stacked.of(part.slots), lora_b_stacked.of(part.slots)
        rows, middle = flat[part.rows], inputs[part.rows].float() @ a.t()
        others = part.others(len(a) // (part.slots.stop - part.slots.start))
        if (
            others is not None
        ):  # not a product with zeros: an infinite value of another adapter must not touch this token
            middle.masked_fill_(others, 0.0)
        if rows.dtype != b.dtype and len(rows) <= FP32_ROWS:
            rows.add_(middle @ b, alpha=scale)
        else:
            rows.addmm_(middle.to(rows.dtype), b.to(rows.dtype), alpha=scale)


def noting(layer: Any) -> None:
    """Let a layer note the slots whose adapter has matrices for it, as `filled` of its B."""
    create, set_lora, reset_lora = layer.create_lora_weights, layer.set_lora, layer.reset_lora

    @functools.wraps(create)
    def created(self: Any, *given: Any, **named: Any) -> None:
        create(self, *given, **named)
        self.lora_b_stacked.filled = set()

    @functools.wraps(set_lora)
    def filled(self: Any, index: int, *given: Any, **named: Any) -> None:
        set_lora(self, index, *given, **named)
        self.lora_b_stacked.filled.add(index)

    @functools.wraps(reset_lora)
    def emptied(self: Any, index: int) -> None:
        reset_lora(self, index)
        self.lora_b_stacked.filled.discard(index)

    layer.create_lora_weights, layer.set_lora, layer.reset_lora = created, filled, emptied


def is_needed(self: Any, b: Any) -> bool:
    """True if a slot of this step is filled in a layer's B."""
    return any(part.slots.start <= slot < part.slots.stop for part in self.parts for slot in b.filled)


def add_lora_logits(self: Any, y: Any, x: Any, a: Any, b: Any, scale: float, **named: Any) -> None:
    """vLLM's own, if an adapter of this step has a head."""
    if is_needed(self, b):
        _add_lora_logits(self, y, x, a, b, scale, **named)


def add_lora_embedding(self: Any, y: Any, x: Any, b: Any, add_inputs: bool = True, **named: Any) -> None:
    """vLLM's own, if an adapter of this step has an embedding."""
    if is_needed(self, b):
        _add_lora_embedding(self, y, x, b, add_inputs, **named)


def bgmv_shrink(
    inputs: Any, lora_b_weights: Any, output_tensor: Any, lora_indices_tensor: Any, scaling: float = 1.0
) -> None:
    """Like vLLM's: `output_tensor` [tokens, rank] = scaling · inputs [tokens, hidden] · A of each token's slot. 0 for
    slot -1.
    """
    _shrink(inputs, lora_b_weights, output_tensor, lora_indices_tensor, scaling)
    output_tensor.masked_fill_((lora_indices_tensor < 0).unsqueeze(1), 0.0)


# vLLM's own operations keep these: `sgmv_shrink` calls the first, and the wrapper holds a reference of its own
lora_ops.bgmv_shrink = bgmv_shrink
punica_cpu.bgmv_shrink = bgmv_shrink
PunicaWrapperCPU.parts = []
PunicaWrapperCPU.update_metadata = update_metadata
PunicaWrapperCPU.add_lora_linear = add_lora_linear
PunicaWrapperCPU.add_lora_logits = add_lora_logits
PunicaWrapperCPU.add_lora_embedding = add_lora_embedding
for layer in (LogitsProcessorWithLoRA, VocabParallelEmbeddingWithLoRA):
    noting(layer)
for layer in (BaseLinearLayerWithLoRA, MergedColumnParallelLinearWithLoRA):
    layer.create_lora_weights = joining(layer.create_lora_weights)
