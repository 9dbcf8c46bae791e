"""Patches for vLLM 0.32 on a CPU (decision 11): for adapters, norms, and requests with a seed.

vLLM's worker imports this package because the engine is started with `--worker-extension-cls
burnish.vllm_patches.Patched`. Nothing else imports it.
"""

from burnish.vllm_patches import lora, norms, seeds

__all__ = ["Patched", "lora", "norms", "seeds"]


class Patched:
    """The base that vLLM's worker inherits from. It adds nothing: importing this package applies the patches."""
