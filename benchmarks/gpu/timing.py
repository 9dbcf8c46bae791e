"""Timing: steps at several micro-batch sizes, each with its seconds, its FLOPs and the card's peak memory.

A size that does not fit is recorded as such, and no larger one is tried.
"""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.gpu.shapes import PEAKS

N_TIMED = 3
Figures = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Step:
    """The median step at one size. `flops` is NaN if they cannot be counted, `peak_gib` 0 on a CPU."""

    seconds: float
    flops: float
    peak_gib: float


def sweep(take: Callable[[int], float], sizes: Sequence[int], device: str) -> dict[int, Step]:
    """A step at each of the ascending `sizes`. `take` does one and returns its FLOPs. The first at a size warms up."""
    found: dict[int, Step] = {}
    for size in sizes:
        try:
            take(size)
            if device != "cpu":
                torch.cuda.reset_peak_memory_stats()
            seconds, flops = [], 0.0
            for _ in range(N_TIMED):
                synchronize(device)
                began = time.perf_counter()
                flops = take(size)
                synchronize(device)
                seconds.append(time.perf_counter() - began)
        except torch.OutOfMemoryError:
            break
        peak = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else 0.0
        found[size] = Step(median(seconds), flops, peak)
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
    return found


def figures(step: Step, n_row_tokens: float, device: str) -> Figures:
    """Flat figures of a step. `tokens_per_s` counts the rows' own tokens: neither padding, nor a shared beginning once
    only, so it compares steps on the same rows whatever they do.
    """
    made: Figures = {"step_s": step.seconds, "tokens_per_s": n_row_tokens / step.seconds}
    if device != "cpu":
        made["peak_gib"] = step.peak_gib
    name = torch.cuda.get_device_name() if device != "cpu" else "a CPU"
    if name not in PEAKS:
        made["mfu_is_absent"] = f"no known peak of {name}"
    elif math.isnan(step.flops):
        made["mfu_is_absent"] = "rows were padded, so their FLOPs were not counted"
    else:
        made["mfu"] = step.flops / step.seconds / PEAKS[name]
    return made | ({} if math.isnan(step.flops) else {"tflop_per_step": step.flops / 1e12})


def sizes_tried(found: dict[int, Step], sizes: Sequence[int]) -> Figures:
    """The seconds at each size, and the first size that did not fit."""
    made: Figures = {f"step_s_micro_{size}": step.seconds for size, step in found.items()}
    missing = [size for size in sizes if size not in found]
    return made | ({"out_of_memory_at_micro": float(missing[0])} if missing else {})


def best_of(found: dict[int, Step], sizes: Sequence[int], n_row_tokens: float, device: str) -> Figures:
    """Flat figures of the fastest size. Only `out_of_memory` if none fitted."""
    if not found:
        return {"out_of_memory": 1.0}
    best = min(found, key=lambda size: found[size].seconds)
    return figures(found[best], n_row_tokens, device) | {"best_micro": float(best)} | sizes_tried(found, sizes)


def synchronize(device: str) -> None:
    """Wait for the card. A CPU has nothing to wait for."""
    if device != "cpu":
        torch.cuda.synchronize()
