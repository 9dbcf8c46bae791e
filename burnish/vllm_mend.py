"""A mend for vLLM 0.32 on a CPU: a request without an adapter must not get the adapter of another.

vLLM marks such a request with slot -1, and its PyTorch operations index the adapters' weights with that: batched beside
requests with adapters, the base answered with the adapter in the last slot (46 of 48 greedy answers were others than alone).
The frozen base judges, so its verdicts were partly the policy's own. Here the share of slot -1 is set to zero.

vLLM's worker imports this module because the engine is started with `--worker-extension-cls burnish.vllm_mend.Mended`;
nothing else does. GPUs have kernels of their own, which leave slot -1 out.
"""

from typing import Any

from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

_shrink = lora_ops.bgmv_shrink


def bgmv_shrink(inputs: Any, lora_b_weights: Any, output_tensor: Any, lora_indices_tensor: Any, scaling: float = 1.0) -> None:
    """As vLLM's: `output_tensor` [tokens, rank] = scaling · inputs [tokens, hidden] · A of each token's slot; zero for slot -1."""
    _shrink(inputs, lora_b_weights, output_tensor, lora_indices_tensor, scaling)
    output_tensor.masked_fill_((lora_indices_tensor < 0).unsqueeze(1), 0.0)


# `sgmv_shrink` calls the first, the wrapper has a reference of its own
lora_ops.bgmv_shrink = bgmv_shrink
punica_cpu.bgmv_shrink = bgmv_shrink


class Mended:
    """What vLLM's worker inherits from: nothing. Importing this module is what mends it."""
