"""Requests with a seed and a prompt that is read in pieces: the engine survives, and the seed decides the draw."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from vllm_process import VllmServer

pytestmark = pytest.mark.engine
N_LONG, N_TOKENS = 6, 900
"""Prompts that are together longer than one step of vLLM on a CPU (4,096 tokens)."""


async def draw(server: VllmServer, prompts: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """The drawn tokens by seed. All requests run at once."""
    headers = {"authorization": f"Bearer {server.api_key}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=300) as client:

        async def one(seed: int, prompt: Sequence[int]) -> list[int]:
            asked = {"model": server.base_name, "prompt": prompt, "max_tokens": 8, "temperature": 1.0, "seed": seed}
            reply = await client.post("/v1/completions", json={**asked, "ignore_eos": True, "return_token_ids": True})
            assert reply.status_code == 200, reply.text
            ids: list[int] = reply.json()["choices"][0]["token_ids"]
            return ids

        return dict(
            zip(prompts, await asyncio.gather(*(one(seed, prompt) for seed, prompt in prompts.items())), strict=True)
        )


def test_seeded_prompts_read_in_pieces_leave_the_engine_alive(vllm_server: VllmServer) -> None:
    prompts = {seed: [10 + (seed * place) % 89 for place in range(N_TOKENS)] for seed in range(1, N_LONG + 1)}

    together = asyncio.run(draw(vllm_server, prompts))

    headers = {"authorization": f"Bearer {vllm_server.api_key}"}
    assert httpx.get(f"{vllm_server.url}/health", timeout=30, headers=headers).status_code == 200
    alone = {seed: asyncio.run(draw(vllm_server, {seed: prompt}))[seed] for seed, prompt in prompts.items()}
    assert together == alone
    assert len({tuple(each) for each in together.values()}) == N_LONG


def test_nothing_is_drawn_for_what_is_not_to_be_sampled() -> None:
    seeds = pytest.importorskip("burnish.vllm_patches.seeds")
    generators = {0: "first", 1: "second", 3: "fourth"}
    batch = SimpleNamespace(num_reqs=4, generators=generators)
    runner = SimpleNamespace(
        input_batch=batch, discard_request_mask=SimpleNamespace(np=np.array([False, True, True, False, True]))
    )
    seen: list[dict[int, str]] = []

    def sample(self: Any, output: str) -> str:
        assert self is runner
        seen.append(dict(batch.generators))
        return output

    assert seeds.sampling(sample)(runner, "tokens") == "tokens"
    assert seen == [{0: "first", 3: "fourth"}]
    assert generators == {0: "first", 1: "second", 3: "fourth"}


def test_generators_are_kept_when_sampling_fails() -> None:
    seeds = pytest.importorskip("burnish.vllm_patches.seeds")
    batch = SimpleNamespace(num_reqs=1, generators={0: "only"})
    runner = SimpleNamespace(input_batch=batch, discard_request_mask=SimpleNamespace(np=np.array([True])))

    def sample(_: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        seeds.sampling(sample)(runner)
    assert batch.generators == {0: "only"}
