"""One arm, a handful of interactions, real vLLM and all parts: what a run leaves, and that the engine forgets it."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.learning import queue
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Job, Tell
from benchmarks.learning.results import Result
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.run import Plan, play
from burnish.server.rollout.engine.vllm import VllmEngine

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(1800)]


def test_a_short_run_through_real_vllm(tmp_path: Path) -> None:
    results: list[Result] = []
    left_over: list[str] = []
    counts: list[int] = []

    async def run(engine: SharedEngine, tell: Tell) -> str:
        def count(n: int, words: str = "") -> None:
            counts.append(n)
            tell(n, words)

        plan = Plan(n_interactions=32, milestones=(0, 32))
        results.append(await play(ARMS["combined"], 0, engine, tmp_path / "run", tmp_path / "cache", count, plan))
        vllm = VllmEngine(engine.url, engine.api_key)
        left_over.extend(name for name in await vllm.models() if "@" in name)
        await vllm.close()
        return "done"

    faults = asyncio.run(queue.work([Job("combined 0", 32, run)], 1, tmp_path / "engine", Console(quiet=True)))

    assert faults == []
    [result] = results
    assert set(result.scores) == {0, 32}
    assert 0 < result.scores[0] < 0.25  # the base now and then says what the users like
    assert sum(counts) == 32
    figures = result.figures
    assert (figures["n_interactions"], figures["n_failed"], figures["n_late"]) == (32, 0, 0)
    assert figures["n_versions"] >= 1
    assert figures["n_trained"] >= 8
    assert figures["judge_calls"] >= 3  # turns that end a session are rated by their user, and need no judge
    assert 0.8 < figures["retention"] <= 1.1
    assert left_over == []
    assert list((tmp_path / "cache").iterdir())  # the next run need not make the base's answers again
