"""Engine and learner agree: the same ids under the same adapter have the same log-probs, to 1e-3 in fp32.

The comparison can fail: it must fail for the base instead of the adapter, and for twice the alpha.
"""

import asyncio
import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import perturb

from burnish.adapters.files.store import AdapterStore
from burnish.config import Recipe
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model import checkpoint
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.model.probe import build_probe
from burnish.learner.run.trainer import Trainer
from burnish.server.rollout.engine.vllm import VllmEngine

pytestmark = [pytest.mark.engine]
TOLERANCE = 1e-3
TEMPERATURE = 0.7
RANK, ALPHA = 8, 16


@dataclass(frozen=True)
class Served:
    """One adapter version, loaded in the engine, with the learner's policy that wrote it."""

    server: Any
    name: str
    directory: Path
    policy: Policy
    prompts: list[list[int]]

    def post(self, route: str, **body: Any) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.server.api_key}"}
        request = urllib.request.Request(f"{self.server.url}{route}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text


@pytest.fixture(scope="module")
def served(vllm_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Served:
    settings = Recipe(rank=RANK, alpha=ALPHA)
    policy = Policy.load(vllm_server.model, rank=RANK, alpha=ALPHA, seed=3, device="cpu")
    perturb(policy, scale=0.1)
    questions = ["Reverse 5 12.", "Copy 7 8 9.", "First of 31 2.", "What is the last of 4 44 9?"]
    prompts = [render(policy.tokenizer, [{"role": "user", "content": text}], ()) for text in questions]
    probe = build_probe(policy, [Text(prompt, prompt[::-1]) for prompt in prompts])
    store = AdapterStore(tmp_path_factory.mktemp("adapters"))
    directory = checkpoint.save(
        store, "agent", 1, Trainer(policy, settings), parent=0, rows=[], metrics={}, probe=probe, cursor=None
    )
    found = Served(vllm_server, "agent@v1", directory, policy, prompts)
    found.post("/v1/load_lora_adapter", lora_name=found.name, lora_path=str(directory))
    return found


@pytest.fixture(scope="module")
def sampled(served: Served) -> tuple[list[Text], list[torch.Tensor]]:
    """Replies drawn by the engine at T = 0.7 with the log-probs that it reported, which are those at 1."""
    rows, logprobs = [], []
    for prompt in served.prompts:
        answer = served.post(
            "/v1/completions",
            model=served.name,
            prompt=prompt,
            n=4,
            seed=11,
            max_tokens=24,
            temperature=TEMPERATURE,
            logprobs=0,
            return_token_ids=True,
        )
        for choice in answer["choices"]:
            rows.append(Text(prompt, choice["token_ids"]))
            logprobs.append(torch.tensor(choice["logprobs"]["token_logprobs"]))
    assert sum(len(row.completion_ids) for row in rows) > 64
    return rows, logprobs


def prompt_logprobs(served: Served, model: str, row: Text) -> torch.Tensor:
    ids = [*row.prompt_ids, *row.completion_ids]
    body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    found = served.post("/v1/completions", **body)["choices"][0]["prompt_logprobs"]
    start = len(row.prompt_ids)
    return torch.tensor([found[at][str(ids[at])]["logprob"] for at in range(start, len(ids))])


def worst(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True))


def test_sampled_logprobs_agree(served: Served, sampled: tuple[list[Text], list[torch.Tensor]]) -> None:
    rows, logprobs = sampled
    assert worst(logprobs, served.policy.logprobs(rows)) < TOLERANCE


def test_prompt_logprobs_agree(served: Served, sampled: tuple[list[Text], list[torch.Tensor]]) -> None:
    rows = sampled[0][:4]
    found = [prompt_logprobs(served, served.name, row) for row in rows]
    assert worst(found, served.policy.logprobs(rows)) < TOLERANCE
    base = [prompt_logprobs(served, served.server.base_name, row) for row in rows]
    assert worst(base, served.policy.logprobs(rows, Weights.BASE)) < TOLERANCE


@pytest.mark.parametrize("mistake", ["base instead of adapter", "alpha doubled"])
def test_a_mistake_is_noticed(served: Served, sampled: tuple[list[Text], list[torch.Tensor]], mistake: str) -> None:
    rows, logprobs = sampled
    if mistake == "base instead of adapter":
        found = served.policy.logprobs(rows, Weights.BASE)
    else:
        other = Policy.load(served.server.model, rank=RANK, alpha=2 * ALPHA, device="cpu")
        other.load_adapter(served.directory)
        found = other.logprobs(rows)
    assert worst(logprobs, found) > TOLERANCE


def test_the_engine_that_serves_a_version_passes_its_probe(served: Served) -> None:
    probe = json.loads((served.directory / checkpoint.PROBE).read_text())
    places = probe["positions"]
    engine = VllmEngine(served.server.url, served.server.api_key)

    async def ask() -> list[float]:
        answers = []
        for place in places:
            row = probe["rows"][place["row"]]
            logprobs = await engine.next_logprobs(
                served.name, [*row["prompt_ids"], *row["completion_ids"][: place["index"]]]
            )
            answers.append(logprobs[place["token_id"]])
        await engine.close()
        return answers

    found = torch.tensor(asyncio.run(ask()))
    gaps = {
        key: float((found - torch.tensor([place[key] for place in places])).abs().max())
        for key in ("candidate", "base")
    }
    assert gaps["candidate"] < TOLERANCE
    assert gaps["base"] > 3 * TOLERANCE
