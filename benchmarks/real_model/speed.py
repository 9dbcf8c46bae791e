"""The engine's speed: tokens a second with Burnish's flags beside bare vLLM with one and with two threads, of the base
and of an adapter.

Each run starts one engine, asks it, and ends it. A seed is a round: all engines take turns, so that a slow hour of the
machine slows all of them.
"""

import asyncio
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.adapters.stand import free_port, process
from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, scores
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Part, Runs, curve
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.real_model import model
from benchmarks.real_model.tables import Report, at_least, beside
from burnish import config
from burnish.config import BASE_NAME, machine
from burnish.errors import BurnishError
from burnish.keys import engine_key
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy
from burnish.processes import vllm_server
from burnish.sandbox.english import questions

STREAMS = (1, 8)
N_REPLIES, N_TOKENS = 3, 128
"""Replies of each stream, one after the other, and the tokens of each."""
ADAPTER, RANK = "fresh", 16
"""The name under which an adapter is served, and its rank."""


@dataclass(frozen=True, slots=True)
class Server:
    """vLLM with our flags (0 threads: as many as Burnish chooses), or bare with so many threads. An adapter answers, or
    else the base.
    """

    name: str
    threads: int = 0
    has_adapter: bool = False

    def flags(self, seed: int) -> dict[str, Any]:
        """What is measured. These are no settings of Burnish."""
        more = {"rank": RANK} if self.has_adapter else {}
        return {"threads": self.threads, "n_replies": N_REPLIES, "n_tokens": N_TOKENS, **more}

    def command(self, directory: str, port: int, folder: Path) -> tuple[list[str], dict[str, str], str]:
        """The command, the environment and the key. `folder` is made afresh. With an adapter the command expects it in
        `folder/ADAPTER`.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        flags: dict[str, Any] = {"state_dir": str(folder), "engine.model": directory, "engine.port": port}
        if self.has_adapter:
            flags["engine.adapters"] = {ADAPTER: str(folder / ADAPTER)}
        settings = config.load(flags=flags)
        if not self.threads:
            return vllm_server.command(settings), vllm_server.environment(settings, os.environ), engine_key(settings)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", directory]
        command += ["--served-model-name", BASE_NAME, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--dtype", machine.dtype("auto", directory)]  # weights of the same type, or the type is measured
        if self.has_adapter:
            command += [
                "--enable-lora",
                "--max-lora-rank",
                str(RANK),
                "--lora-modules",
                f"{ADAPTER}={folder / ADAPTER}",
            ]
        own = {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        # by default it wants 0.92 of the memory, and does not start where something else has more than the rest
        own["VLLM_CPU_KVCACHE_SPACE"] = str(machine.kv_cache_gib(directory))
        return command, {**os.environ, **own}, ""


OURS, BARE = "ours", ("bare-1", "bare-2")
OURS_ADAPTER, BARE_ADAPTER = "ours+adapter", "bare+adapter"
SERVERS = (
    Server(OURS),
    Server(BARE[0], 1),
    Server(BARE[1], 2),
    Server(OURS_ADAPTER, 0, has_adapter=True),
    Server(BARE_ADAPTER, 2, has_adapter=True),
)
ARMS = {each.name: each for each in SERVERS}


def save_adapter(base: str, directory: Path) -> None:
    """A fresh adapter for all linear layers. It changes no reply and costs as much as any other."""
    policy = Policy.load(base, rank=RANK, alpha=RANK, device="cpu", is_bfloat16=True)
    directory.mkdir()
    adapter_file.save(directory, policy.copy_adapter(), policy.config)


async def play(arm: Server, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell) -> Result:
    """Start the engine, measure, end it. Raises BurnishError if it does not start."""
    began, port = time.monotonic(), free_port()
    command, environment, key = arm.command(engine.model, port, folder)
    url = f"http://127.0.0.1:{port}"
    if arm.has_adapter:
        await asyncio.to_thread(save_adapter, engine.model, folder / ADAPTER)
    name = ADAPTER if arm.has_adapter else BASE_NAME
    try:
        with process(folder / "parts.log", command, environment, f"{url}/health"):
            await tokens_per_second(url, key, max(STREAMS), 16, name)  # warm
            speeds = {n: await tokens_per_second(url, key, n, model=name) for n in STREAMS}
    except SystemExit as error:
        raise BurnishError(str(error)) from error
    tell(max(STREAMS))
    return Result(arm.name, seed, arm.flags(seed), speeds, {"n_failed": 0, "seconds": round(time.monotonic() - began)})


async def tokens_per_second(
    url: str, key: str, n_streams: int, n_tokens: int = N_TOKENS, model: str = BASE_NAME
) -> float:
    """The speed of `n_streams` streams together. Every reply has `n_tokens` tokens."""
    http = aiohttp.ClientSession(
        url,
        headers={"authorization": f"Bearer {key}"},
        timeout=aiohttp.ClientTimeout(600),
        connector=aiohttp.TCPConnector(force_close=True),  # a busy server closes idle connections at any moment
    )
    asked = [question.messages for question in questions.training()]
    body = {"model": model, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0.6, "stream": True}

    async def stream(place: int) -> None:
        for n in range(N_REPLIES):
            messages = asked[(place + n * n_streams) % len(asked)]
            async with http.post("/v1/chat/completions", json={**body, "messages": messages}) as response:
                response.raise_for_status()
                async for _ in response.content:
                    pass

    async with http:
        began = time.monotonic()
        await asyncio.gather(*map(stream, range(n_streams)))
        return n_streams * N_REPLIES * n_tokens / (time.monotonic() - began)


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """Tokens a second by streams, and the run's seconds."""
    return {f"tokens_{n}": scores(results, arm, n) for n in STREAMS} | {"seconds": counted(results, arm, "seconds")}


def barred(results: ByArm) -> dict[str, Measured]:
    """Our mean ÷ the best bare mean. Absent unless every engine was measured."""
    found: dict[str, Measured] = {}
    for n in STREAMS:
        for key, ours, others in (("engine_share", OURS, BARE), ("adapter_share", OURS_ADAPTER, (BARE_ADAPTER,))):
            by_arm = {arm: list(scores(results, arm, n).values()) for arm in (ours, *others)}
            if all(by_arm.values()):
                best = max(estimate(by_arm[arm]).mean for arm in others)
                n_rounds = min(map(len, by_arm.values()))
                found[f"{key}_{n}"] = Measured(estimate(by_arm[ours]).mean / best, n_rounds)
    return found


BARS = (
    *(at_least(f"ours ÷ bare vLLM at its best, {n} streams", f"engine_share_{n}", 0.95) for n in STREAMS),
    *(beside(f"the same with an adapter, {n} streams", f"adapter_share_{n}") for n in STREAMS),
)
REPORT = Report(
    "The engine's tokens a second, SmolLM2-135M-Instruct",
    ARMS,
    columns,
    {"tokens a second by streams": ("tokens_1", "tokens_8", "seconds")},
    barred,
    BARS,
    n_min=3,
)
PART = Part(
    "engine", (questions.FOLDER / "train.jsonl",), ARMS, tuple(ARMS), max(STREAMS), play, curve, REPORT.tables(),
    under=model.IDENTITY, runs=Runs.APART,
)  # fmt: skip
