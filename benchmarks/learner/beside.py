"""The effect of a learner that steps without a pause on streams on the same cores.

The figure is the p99 of the gaps between tokens, compared with an idle learner.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from benchmarks.learner.live import rows_ready
from benchmarks.learner.stand import PORTS, Reply, Stand, standing, streams
from burnish import config
from burnish.learner.run.throttle import IDLE

N_STREAMS = 4


async def measure(folder: Path, *, rounds: int, seconds: float, tell: Callable[[str], None]) -> dict[str, float]:
    """The median ratio of interleaved windows of `seconds`, idle and stepping, and the settings behind it."""
    tell("starting every part but the learner")
    settings = config.load()
    async with standing(folder, learner__enabled=False) as stand:
        await rows_ready(stand, settings.recipe.max_rows)
        tell("loading the learner")
        child = await _learner(stand)
        try:
            pairs, n_steps = await _rounds(stand, child, rounds, seconds, tell)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            await child.wait()
    return {
        "serving_p99_ratio": statistics.median(busy / idle for idle, busy in pairs),
        "idle_p99_ms": 1000 * statistics.median(idle for idle, _ in pairs),
        "stepping_p99_ms": 1000 * statistics.median(busy for _, busy in pairs),
        "steps_in_all": float(n_steps),
        "learner_threads": float(settings.learner.threads),
        "learner_nice": float(IDLE),
        "engine_threads": float(os.environ.get("OMP_NUM_THREADS", "1")),
        "cores": float(len(os.sched_getaffinity(0))),
    }


async def _rounds(
    stand: Stand, child: Process, rounds: int, seconds: float, tell: Callable[[str], None]
) -> tuple[list[tuple[float, float]], int]:
    is_over, replies = asyncio.Event(), list[Reply]()
    talking = asyncio.create_task(streams(stand, N_STREAMS, random.Random(0), is_over, replies))
    windows: list[tuple[float, float]] = []
    n_steps = 0
    await asyncio.sleep(2.0)
    for number in range(2 * rounds):
        is_busy = number % 2 == 1
        tell(f"round {number // 2 + 1} of {rounds}: {'stepping' if is_busy else 'idle'}")
        n_steps = await _send(child, "go" if is_busy else "stop")
        await asyncio.sleep(1.5)  # a running step ends, the pace settles
        began = time.monotonic()
        await asyncio.sleep(seconds)
        windows.append((began, time.monotonic()))
    n_steps = await _send(child, "stop")
    is_over.set()
    await talking
    found = [_p99(replies, *window) for window in windows]
    return list(zip(found[::2], found[1::2], strict=True)), n_steps


def _p99(replies: list[Reply], began: float, ended: float) -> float:
    """The p99 of all gaps between pieces within the window, seconds."""
    gaps = sorted(
        after - before
        for reply in replies
        for before, after in zip(reply.at, reply.at[1:], strict=False)
        if began <= before and after <= ended
    )
    if len(gaps) < 200:
        raise RuntimeError(f"expected at least 200 gaps between tokens in a window, got {len(gaps)}; raise --seconds")
    return gaps[int(0.99 * len(gaps))]


async def _learner(stand: Stand) -> Process:
    command = (
        sys.executable,
        "-m",
        "benchmarks.learner.stepping",
        str(stand.settings.state_dir),
        str(PORTS["engine.port"]),
    )
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert child.stdout is not None
    if not (await child.stdout.readline()).startswith(b"ready"):
        raise RuntimeError("expected `ready` from the learner, got something else; its error is above")
    return child


async def _send(child: Process, word: str) -> int:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{word}\n".encode())
    await child.stdin.drain()
    return int((await child.stdout.readline()).split()[0])
