"""`itl_p99_ratio`, `swap_stall_ms`: what a stream feels of swaps, beside rounds without any, one after the other."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median

from benchmarks.adapters import load
from benchmarks.adapters.clients import Job
from benchmarks.adapters.stand import Stand
from benchmarks.bars import Tell

Gap = tuple[float, float]
AROUND = 0.3
"""Seconds after the flip that still belong to a swap: the old version drains, the new one is asked for the first time."""


def measure(stand: Stand, rounds: int, seconds: float, per_second: float, tell: Tell) -> dict[str, float]:
    """`rounds` pairs of a quiet and a swapping round, in alternating order, with the same clients all the time."""
    if not stand.newest:
        stand.swap()
    pairs: list[dict[str, tuple[float, float]]] = []
    stand.spans.clear()
    with load.running(Job(stand.port, len(stand.voices))) as clients:
        _rest(2.0)
        for i in range(rounds):
            pair = {}
            for kind in ("quiet", "swapping") if i % 2 else ("swapping", "quiet"):
                tell(f"round {i + 1} of {rounds}: {kind}")
                pair[kind] = _round(stand, seconds, per_second if kind == "swapping" else 0.0)
                _rest(1.0)
            pairs.append(pair)
    gaps = sorted((at, gap) for at, gap in clients.seen.gaps)
    ratios = [_p99(_within(gaps, *pair["swapping"])) / _p99(_within(gaps, *pair["quiet"])) for pair in pairs]
    excess, n_swaps = [], 0
    for pair in pairs:
        begin, end = pair["swapping"]
        spans = [span for span in stand.spans if begin <= span[1] < end]
        n_swaps += len(spans)
        excess += [_stall(gaps, began, live, pair["quiet"][0] - begin) for _, began, live in spans]
    quiet = [gap for pair in pairs for gap in _within(gaps, *pair["quiet"])]
    swapping = [gap for pair in pairs for gap in _within(gaps, *pair["swapping"])]
    return {
        "itl_p99_ratio": median(ratios),
        "itl_p99_ratio_low": min(ratios),
        "itl_p99_ratio_high": max(ratios),
        "swap_stall_ms": 1e3 * median(excess),
        "itl_swaps_per_s": n_swaps / (rounds * seconds),
        "itl_p50_quiet_ms": 1e3 * median(quiet),
        "itl_p50_swapping_ms": 1e3 * median(swapping),
        "itl_p99_quiet_ms": 1e3 * _p99(quiet),
        "itl_p99_swapping_ms": 1e3 * _p99(swapping),
        "itl_seconds": 2 * rounds * seconds,
        "itl_failed": clients.seen.n_failed + clients.seen.n_wrong,
    }


def _round(stand: Stand, seconds: float, per_second: float) -> tuple[float, float]:
    """Swaps begin `per_second` times a second, or as soon as the one before is live; without any the time just passes."""
    begin = time.monotonic()
    n = 0
    while time.monotonic() < begin + seconds:
        if per_second and time.monotonic() < begin + seconds - 0.5:
            stand.swap()
            n += 1
            _rest(begin + n / per_second - time.monotonic())
        else:
            _rest(0.05)
    return begin, time.monotonic()


def _rest(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def _stall(gaps: Sequence[Gap], began: float, live: float, shift: float) -> float:
    """The largest gap around a swap less that of the window of the same length at the same place of the quiet round."""
    window = (began, live + AROUND)
    return max(_within(gaps, *window), default=0.0) - max(_within(gaps, *(at + shift for at in window)), default=0.0)


def _within(gaps: Sequence[Gap], begin: float, end: float) -> list[float]:
    at = [moment for moment, _ in gaps]
    return [gap for _, gap in gaps[bisect_left(at, begin) : bisect_right(at, end)]]


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
