"""A personal agent on a real vLLM: it begins like its parent and learns without any effect on the parent's users."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from personal_world import World
from vllm_process import VllmServer

from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.personal import name_of
from burnish.adapters.serving.prepare import prepare
from burnish.config import Engine, Personal, Recipe
from burnish.journal.tables import VersionRow
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model import checkpoint
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.model.probe import build_probe
from burnish.learner.run.trainer import Trainer
from burnish.server.rollout.engine.vllm import VllmEngine
from burnish.server.rollout.forgetting_prompts import RetentionPrompt, RetentionSet
from burnish.testing import StubEngine
from tests.server.gateway.gateways import make_keys, serve, write_table

pytestmark = pytest.mark.engine
ANA = name_of("default", "agent", "ana")
ASKED = [{"role": "user", "content": "Copy 5 6."}]


async def emptied(server: VllmServer) -> None:
    """Unload the versions of other files' tests.

    They share the engine, and a loaded version of theirs would answer under one of our names.
    """
    engine = VllmEngine(server.url, server.api_key)
    for name in await engine.models():
        if "@v" in name:
            await engine.unload(name)
    await engine.close()


@pytest.fixture
def world(tmp_path: Path, vllm_server: VllmServer) -> Iterator[World]:
    asyncio.run(emptied(vllm_server))
    anything = RetentionPrompt(ASKED, (), re.compile(".*", re.DOTALL))
    retention = RetentionSet([anything] * 64, max_tokens=2)
    stand_in = StubEngine(url=vllm_server.url)  # only its address is needed
    with serve(tmp_path, stand_in, personal=Personal(enabled=True)) as gateway:
        engine = Engine(
            urls=(vllm_server.url,),
            api_key=vllm_server.api_key,
            model=str(vllm_server.model),
        )
        settings = gateway.settings.model_copy(update={"engine": engine})
        write_table(settings, (vllm_server.url,), make_keys()[1], agents={})
        made = World(gateway, settings, retention)
        yield made
        made.journal.close()


def learned(world: World, agent: str, number: int, seed: int, scale: float = 0.05) -> str:
    """A version with random weights, published like a learner's. Returns its digest."""
    policy = Policy.load(world.settings.engine.model, rank=8, alpha=16, device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * scale)
    rows = [Text(render(policy.tokenizer, ASKED, ()), policy.tokenizer.encode("5 6 7 8 9", add_special_tokens=False))]
    probe = build_probe(policy, rows, Weights.BASE)
    trainer = Trainer(policy, Recipe(rank=8))
    checkpoint.save(world.store, agent, number, trainer, parent=number - 1, rows=[], metrics={}, probe=probe)
    return str(world.store.manifest(agent, number)["files"]["adapter_model.safetensors"])


def said(world: World, user: str) -> tuple[str, str]:
    """The version that answers `user`, and its words."""
    reply = world.gateway.chat(world.back_end, user=user, messages=ASKED, temperature=0, max_tokens=12)
    assert reply.status_code == 200, reply.text
    return str(reply.headers["x-burnish-version"]), str(reply.json()["choices"][0]["message"]["content"])


def test_it_begins_as_its_parent_and_learns_aside(world: World) -> None:
    digest = learned(world, "agent", 1, seed=1)
    with world.journal.write() as session:
        row = {"agent": "agent", "version": 1, "parent": 0, "digest": digest, "state": "candidate"}
        session.add(VersionRow(**row, evidence={}, created_at=0.0))
        session.flush()
        lifecycle.promote(session, "agent", 1, expected=0, actor="test")
    prepare(world.settings).close()
    world.settle()
    first, words = said(world, "ana")
    assert first == "agent@v1"
    world.settle()
    assert said(world, "ana") == (f"{ANA}@v1", words)

    digest = learned(world, ANA, 2, seed=2, scale=0.3)
    with world.journal.write() as session:
        lifecycle.announce(session, ANA, 2, parent=1, step_id=None, digest=digest)
    world.settle()
    second, others = said(world, "ana")
    with world.journal.read() as session:
        assert second == f"{ANA}@v2", lifecycle.version(session, ANA, 2).reason
    assert others != words
    assert said(world, "ben") == ("agent@v1", words)
    assert {agent for agent, *_ in world.turns()} == {"agent", ANA}
