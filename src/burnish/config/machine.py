"""What this machine gives a model on a CPU: threads, memory for the KV cache, and faster libraries if installed.

A model of a few million parameters is fastest on one thread, because its matrices are too small to share. Any other
gets every core. The learner works at the lowest priority, so it takes what the engine leaves.
"""

import os
import subprocess
from pathlib import Path

SMALL = 64 * 2**20
"""Bytes of weights below which a model gets one thread. The sandbox's model has 8 MB, SmolLM2-135M has 538 MB."""
KV_SHARE = 1 / 8
"""Share of the machine's memory for the KV cache of a model that is not small."""
MAX_KV_GIB = 32
_PRELOADED = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
"""Allocators that vLLM recommends on a CPU, the first one found is used."""


def n_threads(model: str) -> int:
    """Threads for the engine on a CPU."""
    return 1 if _is_small(model) else len(os.sched_getaffinity(0))


def n_learner_threads(model: str) -> int:
    """Threads for the learner on a CPU: half of the engine's. Beside a busy engine, threads that share what is left of
    one core wait for each other.
    """
    return max(1, n_threads(model) // 2)


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


def _is_small(model: str) -> bool:
    """True if the weights in the directory `model` are few. A hub name is not small."""
    files = [*Path(model).glob("*.safetensors"), *Path(model).glob("*.bin")]
    return bool(files) and sum(file.stat().st_size for file in files) < SMALL
