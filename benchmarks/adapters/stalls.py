"""`itl_p99_ratio`, `swap_stall_ms`: the effect of swaps on a stream, compared with rounds without swaps."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.adapters import load, stand
from benchmarks.adapters.clients import Job
from benchmarks.adapters.stand import Stand
from benchmarks.bars import Bar, Tell

Gap = tuple[float, float]
AROUND = 0.3
"""Seconds after the flip that still belong to a swap: the old version drains, the new one gets its first requests."""

ROUNDS, SECONDS, PER_SECOND = 9, 8.0, 1.1
BARS: tuple[Bar, ...] = (
    ("p99 inter-token latency, ≥ 1 swap/s over none", "itl_p99_ratio", "≤ 1.25", lambda f: f["itl_p99_ratio"] <= 1.25),
    (
        "largest gap around a swap, minus a quiet window's, ms",
        "swap_stall_ms",
        "≤ 40",
        lambda f: f["swap_stall_ms"] <= 40,
    ),
)


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """Rounds with swaps and rounds without, in turn."""
    with stand.running(folder) as whole:
        return _measure(whole, ROUNDS, SECONDS, PER_SECOND, tell)


def _measure(whole: Stand, rounds: int, seconds: float, per_second: float, tell: Tell) -> dict[str, float]:
    """`rounds` pairs of a quiet round and a round with swaps, in alternating order, with the same clients."""
    if not whole.newest:
        whole.swap()
    pairs: list[dict[str, tuple[float, float]]] = []
    whole.spans.clear()
    whole.publish_ahead(int(rounds * seconds * per_second) + 1)
    with load.running(Job(whole.port, len(whole.voices))) as clients:
        _rest(2.0)
        for i in range(rounds):
            pair = {}
            for kind in ("quiet", "swapping") if i % 2 else ("swapping", "quiet"):
                tell(f"round {i + 1} of {rounds}: {kind}")
                pair[kind] = _round(whole, seconds, per_second if kind == "swapping" else 0.0)
                _rest(1.0)
            pairs.append(pair)
    gaps = sorted((at, gap) for at, gap in clients.seen.gaps)
    ratios = [_p99(_within(gaps, *pair["swapping"])) / _p99(_within(gaps, *pair["quiet"])) for pair in pairs]
    excess, n_swaps = [], 0
    for pair in pairs:
        begin, end = pair["swapping"]
        spans = [span for span in whole.spans if begin <= span[1] < end]
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


def _round(whole: Stand, seconds: float, per_second: float) -> tuple[float, float]:
    """Swap `per_second` times a second, or as soon as the previous version is live. Without a rate, only wait."""
    begin = time.monotonic()
    n = 0
    while time.monotonic() < begin + seconds:
        if per_second and time.monotonic() < begin + seconds - 0.5:
            whole.swap()
            n += 1
            _rest(begin + n / per_second - time.monotonic())
        else:
            _rest(0.05)
    return begin, time.monotonic()


def _rest(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def _stall(gaps: Sequence[Gap], began: float, live: float, shift: float) -> float:
    """The largest gap around a swap, minus the largest gap in the same window of the quiet round."""
    window = (began, live + AROUND)
    return max(_within(gaps, *window), default=0.0) - max(_within(gaps, *(at + shift for at in window)), default=0.0)


def _within(gaps: Sequence[Gap], begin: float, end: float) -> list[float]:
    at = [moment for moment, _ in gaps]
    return [gap for _, gap in gaps[bisect_left(at, begin) : bisect_right(at, end)]]


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
