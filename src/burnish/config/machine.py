"""What this machine gives a model: the type of its weights, threads, memory for the KV cache, faster libraries.

A model of a few million parameters is fastest on one thread, because its matrices are too small to share. Any other
gets every core. The learner works at the lowest priority, so it takes what the engine leaves.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SMALL = 64 * 2**20
"""Bytes of weights below which a model gets one thread. The sandbox's model has 8 MB, SmolLM2-135M has 538 MB."""
KV_SHARE = 1 / 8
"""Share of the machine's memory for the KV cache of a model that is not small."""
MAX_KV_GIB = 32
CPU_INFO = Path("/proc/cpuinfo")
FAST_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of processors that multiply bfloat16 natively (x86 with AVX-512 or AMX, ARM)."""
_PRELOADED = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
"""Allocators that vLLM recommends on a CPU, the first one found is used."""


def has_gpu() -> bool:
    """True if there is an NVIDIA driver."""
    return shutil.which("nvidia-smi") is not None


def dtype(chosen: str, model: str) -> str:
    """The type of the weights for engine and learner, from `engine.dtype`. `auto` stays on a GPU, where vLLM decides.

    On a CPU it is bfloat16 if the processor multiplies that natively (docs/decisions/0030-bfloat16-on-a-cpu.md), else
    float32. A small model is float32 everywhere: it is fast enough.
    """
    if chosen != "auto" or has_gpu():
        return chosen
    return "bfloat16" if has_fast_bfloat16() and not _is_small(model) else "float32"


def has_fast_bfloat16() -> bool:
    """True if this machine's processor multiplies bfloat16 natively."""
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not FAST_BFLOAT16.isdisjoint(flags.split())


def n_threads(model: str) -> int:
    """Threads on a CPU, for the engine and for the learner each."""
    return 1 if _is_small(model) else len(os.sched_getaffinity(0))


def kv_cache_gib(model: str) -> int:
    """GiB for the engine's KV cache on a CPU."""
    if _is_small(model):
        return 1
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(MAX_KV_GIB, int(total * KV_SHARE / 2**30)))


def preload() -> str | None:
    """The allocator to preload. None if none is installed."""
    try:
        known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    for name in _PRELOADED:
        for line in known.splitlines():
            if line.strip().startswith(name + " "):
                return line.rpartition("=> ")[2].strip()
    return None


def return_free_memory() -> None:
    """Give the memory that this process has freed back to the system. Only glibc can do so, and does not by itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def has_fast_python() -> bool:
    """True if this Python was built with profile-guided optimisation, as far as its build says.

    pyenv builds without it by default. Distributions build with it and do not always say so.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS")
    return not options or "--enable-optimizations" in options or sys.base_prefix == "/usr"


def _is_small(model: str) -> bool:
    """True if the weights in the directory `model` are few. A hub name is not small."""
    files = [*Path(model).glob("*.safetensors"), *Path(model).glob("*.bin")]
    return bool(files) and sum(file.stat().st_size for file in files) < SMALL
