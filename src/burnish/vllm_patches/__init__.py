"""Patches for vLLM 0.32 on a CPU (docs/decisions/0011-vllm-patches-on-a-cpu.md): of adapters, and of requests with a
seed.

vLLM's worker imports this package because the engine is started with `--worker-extension-cls
burnish.vllm_patches.Patched`; nothing else does.
"""

from burnish.vllm_patches import lora, seeds

__all__ = ["Patched", "lora", "seeds"]


class Patched:
    """The base that vLLM's worker inherits from. It adds nothing: importing this package applies the patches."""
