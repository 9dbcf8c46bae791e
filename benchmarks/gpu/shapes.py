"""Shapes: models of Qwen3's form with random weights, made on the device, and the arithmetic of a pass through them.

The FLOPs of a pass over T tokens, C of which predict a token of a completion, with P pairs of a query and a key:

    without gradient        2·N·T + 2·V·h·C +  4·L·H·d·P
    forward and backward    4·N·T + 4·V·h·C + 12·L·H·d·P

N counts the weights of the layers' linear maps, V·h those of the head, and L·H·d is layers × heads × head size. The
base is frozen, so backward makes the gradients of the activations (2·N) and not those of the weights. Attention has
two products in forward and four in backward. LoRA's own matrices (under 1 % at rank 16), norms, and what a kernel or
a checkpoint computes twice do not count. MFU is FLOPs ÷ seconds ÷ the card's dense bf16 peak.
"""

from dataclasses import dataclass
from typing import Any

PEAKS = {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H200": 989e12}
"""Dense bf16 FLOP/s by the card's exact name: the PCIe and NVL cards are slower."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's sizes, the lengths of its rows in tokens, and the minutes after which one side of it is surely done."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    n_vocab: int = 151_936
    is_tied: bool = True
    prompts: tuple[int, int] = (512, 2048)
    completions: tuple[int, int] = (128, 512)
    minutes: float = 1.5

    @property
    def n_linear(self) -> int:
        """N: the weights of the layers' linear maps."""
        attention = self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * self.hidden * (attention + 3 * self.intermediate)

    def flops(self, n_tokens: int, n_targets: int, n_pairs: int, *, with_gradient: bool) -> float:
        """The FLOPs of a pass, by the formula above."""
        weights = self.n_linear * n_tokens + self.n_vocab * self.hidden * n_targets
        pairs = self.layers * self.heads * self.head_dim * n_pairs
        return float(4 * weights + 12 * pairs if with_gradient else 2 * weights + 4 * pairs)


SHAPES = {
    "0.6b": Shape(1024, 3072, 28, 16, 8),
    "1.7b": Shape(2048, 6144, 28, 16, 8, minutes=1.8),
    "4b": Shape(2560, 9728, 36, 32, 8, minutes=2.2),
    "8b": Shape(4096, 12288, 36, 32, 8, is_tied=False, minutes=3.0),
    "tiny": Shape(64, 128, 2, 4, 2, 16, 512, prompts=(24, 96), completions=(8, 24), minutes=0.5),
}
"""Qwen3's dense models, and one for the CPU that tries the logic."""


def config(shape: Shape) -> Any:
    """The shape as a configuration of transformers."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=shape.n_vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=40_960,
        tie_word_embeddings=shape.is_tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )


def build(shape: Shape, device: str) -> Any:
    """The base, the same each time: bf16 on a GPU, fp32 on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            config(shape), dtype=torch.float32 if device == "cpu" else torch.bfloat16
        )


def adapted(base: Any) -> tuple[Any, Any]:
    """The base with a fresh adapter of the recipe's default rank, the same each time, and the adapter's settings."""
    import torch
    from peft import LoraConfig, get_peft_model

    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.0, target_modules=layers)
    torch.manual_seed(1)
    return get_peft_model(base, lora).eval(), lora
