"""Mends for vLLM 0.32 on a CPU: a request without an adapter gets none, and adapters cost a small part of a step instead of most of it.

vLLM marks a request without an adapter with slot -1, and its PyTorch operations index the adapters' weights with that: batched beside
requests with adapters, the base answered with the adapter in the last slot (46 of 48 greedy answers were others than alone).
The frozen base judges, so its verdicts were partly the policy's own. Here slot -1 adds nothing.

The same operations copy the adapter's two matrices once for every *token*, in every layer: of the worker's time in a run of the
sandbox 64 % was theirs, a tenth the base's own products'. Here the tokens of one slot are multiplied together.

vLLM's worker imports this module because the engine is started with `--worker-extension-cls burnish.vllm_mend.Mended`;
nothing else does. GPUs have kernels of their own, which leave slot -1 out and copy nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

Group = tuple[int, slice, Any]
"""A slot, the rows from its first token to its last, and a mask [rows, 1] of those that are its own; None where all are."""

_shrink = lora_ops.bgmv_shrink
_update_metadata = PunicaWrapperCPU.update_metadata


def grouped(slots: Sequence[int]) -> list[Group]:
    """The tokens by slot, -1 left out; `slots` has each token's."""
    rows: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        if slot >= 0:
            rows.setdefault(slot, []).append(row)
    return [(slot, slice(found[0], found[-1] + 1), _mask(found)) for slot, found in rows.items()]


def _mask(rows: list[int]) -> Any:
    n = rows[-1] + 1 - rows[0]
    if n == len(rows):
        return None
    mask = torch.zeros(n, 1)
    mask[[row - rows[0] for row in rows]] = 1.0
    return mask


def update_metadata(self: Any, *given: Any, **named: Any) -> None:
    """As vLLM's, once a step; and the step's tokens by slot, for all of its layers."""
    _update_metadata(self, *given, **named)
    self.groups = grouped(self.token_lora_indices.tolist())


def add_lora_linear(
    self: Any,
    y: Any,
    x: Any,
    lora_a_stacked: Sequence[Any],
    lora_b_stacked: Sequence[Any],
    scale: float,
    output_slices: Sequence[int],
    **_: Any,
) -> None:
    """`y` [tokens, Σ outputs] += scale · (x [tokens, hidden] · A [rank, hidden]ᵀ) · B [outputs, rank]ᵀ of each token's slot.

    Slice by slice; between the two products numbers are fp32, as in vLLM's own operations.
    """
    flat, inputs = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
    for slot, rows, mask in self.groups:
        mine, begin = inputs[rows].float(), 0
        for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            shrunk = mine @ a[slot, 0].float().t()
            if scale != 1.0:
                shrunk *= scale
            if mask is not None:  # cheaper than to gather a few rows and to scatter them again
                shrunk *= mask
            flat[rows, begin : begin + width].addmm_(shrunk.to(flat.dtype), b[slot, 0].to(flat.dtype).t())
            begin += width


def bgmv_shrink(inputs: Any, lora_b_weights: Any, output_tensor: Any, lora_indices_tensor: Any, scaling: float = 1.0) -> None:
    """As vLLM's: `output_tensor` [tokens, rank] = scaling · inputs [tokens, hidden] · A of each token's slot; zero for slot -1."""
    _shrink(inputs, lora_b_weights, output_tensor, lora_indices_tensor, scaling)
    output_tensor.masked_fill_((lora_indices_tensor < 0).unsqueeze(1), 0.0)


# what is left to vLLM's own operations: `sgmv_shrink` calls the first, the wrapper has a reference of its own
lora_ops.bgmv_shrink = bgmv_shrink
punica_cpu.bgmv_shrink = bgmv_shrink
PunicaWrapperCPU.groups = ()
PunicaWrapperCPU.update_metadata = update_metadata
PunicaWrapperCPU.add_lora_linear = add_lora_linear


class Mended:
    """What vLLM's worker inherits from: nothing. Importing this module is what mends it."""
