"""Judging with the real engine: the accuracy of the sandbox's judge, and the worker's share of the engine's speed.

Accuracy is measured on the shipped golden set. The worker (journal, lease, question, count, verdict committed) and a
bare client that only posts the same prompts take turns on one vLLM, at the same concurrency. The share is the median
worker's turns/s over the median client's. Both send the prompts once before. The engine's prefix cache then holds them,
so the engine is at its fastest and the share is at its lowest.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from benchmarks.judging.turns import journal_with
from benchmarks.judging.vllm import running
from burnish.config import Settings
from burnish.journal import Journal, jobs
from burnish.journal.tables import JudgeJob
from burnish.judges.calibration import golden
from burnish.judges.calibration.calibrate import Calibration, Terms, calibrate
from burnish.judges.calibration.golden import GoldenCase
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.judges.process import make_judge
from burnish.judges.worker import Worker
from burnish.keys import engine_key
from burnish.processes import vllm_server

ROUND_SECONDS = 300.0


def measure(folder: Path, rounds: int, tell: Callable[[str], None]) -> dict[str, float]:
    """`judge_accuracy`, `judge_abstained`, `judge_failed`, `engine_share` and the two rates behind it."""
    tell("vLLM starts")
    with running(folder / "engine") as settings:
        url, key = vllm_server.engine_url(settings), engine_key(settings)
        cases = golden.load(golden.SHIPPED)
        terms = Terms(settings.judge.votes, settings.judge.concurrency)
        tell("the golden set")
        calibration = asyncio.run(_calibrated(settings, url, key, cases, terms)).figures
        asked = [case for case in cases if case.origin == "user"]
        worker, client = [], []
        for number in range(rounds + 1):
            tell(f"worker and bare client, round {number} of {rounds}")
            client.append(asyncio.run(_bare(settings, url, key, asked)))
            worker.append(_worked(settings, url, key, asked, folder / f"round-{number}"))
            tell(f"turns/s: worker {worker[-1]:.1f}, client {client[-1]:.1f}")
    ours, theirs = statistics.median(worker[1:]), statistics.median(client[1:])
    return {
        "judge_accuracy": calibration["accuracy"],
        "judge_abstained": calibration["abstained"],
        "judge_failed": calibration["failed"],
        "judge_kappa": calibration["kappa"],
        "engine_share": ours / theirs,
        "engine_worker_turns_per_s": ours,
        "engine_client_turns_per_s": theirs,
    }


async def _calibrated(settings: Settings, url: str, key: str, cases: list[GoldenCase], terms: Terms) -> Calibration:
    judge = make_judge(settings, url, key, "")
    try:
        return await calibrate(judge, cases, terms)
    finally:
        await judge.close()


def _worked(settings: Settings, url: str, key: str, cases: list[GoldenCase], folder: Path) -> float:
    """Turns/s of our worker, from the first lease to the last committed verdict."""
    journal = journal_with(
        folder, [(case.messages, str(case.reply["content"]), str(case.next_state[0]["content"])) for case in cases]
    )
    panel = Panel([make_judge(settings, url, key, "")])
    worker = Worker(journal, panel, settings.judge)

    async def run() -> float:
        started = time.perf_counter()
        await worker.run_forever(lambda: _is_done(journal, len(cases)) or time.perf_counter() - started > ROUND_SECONDS)
        seconds = time.perf_counter() - started
        await panel.close()
        if not _is_done(journal, len(cases)):
            raise SystemExit(
                f"expected {len(cases)} judged turns within {ROUND_SECONDS:.0f} s, got fewer; "
                "check that the engine answers"
            )
        return seconds

    seconds = asyncio.run(run())
    journal.close()
    return len(cases) / seconds


def _is_done(journal: Journal, n: int) -> bool:
    with journal.read() as session:
        return jobs.counts(session, JudgeJob).get("done", 0) == n


async def _bare(settings: Settings, url: str, key: str, cases: list[GoldenCase]) -> float:
    """Turns/s of a client that only posts the same bodies and reads the answers."""
    judge = make_judge(settings, url, key, "")
    assert isinstance(judge, LocalJudge)
    bodies = [judge.body(golden.question(case).messages, settings.judge.votes) for case in cases]
    headers = {"Authorization": f"Bearer {key}"}

    async def client(http: aiohttp.ClientSession) -> None:
        while bodies:
            async with http.post(f"{url}/v1/chat/completions", json=bodies.pop(0)) as response:
                assert response.status == 200, await response.text()
                await response.read()

    async with aiohttp.ClientSession(headers=headers) as http:
        started = time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(settings.judge.concurrency)))
        return len(cases) / (time.perf_counter() - started)
