"""A shadow group on a real vLLM: drawn with exact tokens while idle, scored by the wish and by an unfit judge."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from vllm_process import VllmServer

from burnish import config
from burnish.adapters.serving.prepare import prepare, routes_file
from burnish.config import BASE_NAME
from burnish.journal import Journal, shadows
from burnish.journal.tables import ShadowGroupRow
from burnish.journal.turns import from_bytes, record_judgement
from burnish.judges.comparison.grader import Grader
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.learner.data.rows import Text
from burnish.learner.grading.hint_grader import HintGrader
from burnish.learner.model.policy import Policy
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.server.rollout.agent_settings import settings_by_agent
from burnish.server.rollout.shadow_groups.drawer import Drawer
from burnish.server.rollout.shadow_groups.engine_source import VllmSource
from tests.factories import interaction, judgement, user
from tests.turns import add_next_state, add_turn

pytestmark = pytest.mark.engine
ASKED = [user("Reverse 5 12.")]


class World:
    """A journal with one live turn, and its group's drawer and grader.

    The real engine answered the turn and its user corrected it.
    """

    def __init__(self, folder: Path, server: VllmServer, grader: str = "rubric") -> None:
        given = {"engine.urls": [server.url], "engine.api_key": server.api_key}
        self.settings = config.load(
            flags={
                "state_dir": str(folder),
                "groups.enabled": True,
                "groups.grader": grader,
                "gate.tier": "fast",
                **given,
            }
        )
        self.journal: Journal = prepare(self.settings)
        self.source = VllmSource(server.url, server.api_key)
        of = settings_by_agent(self.settings, self.journal)
        self.drawer = Drawer(self.journal, [self.source], routes_file(self.settings), self.settings, of, look=0.05)

    async def live_turn(self, name: str = "t1") -> str:
        prompt_ids, drawn = await self.source.draw(BASE_NAME, ASKED, (), 1.0, 64)
        turn = interaction(
            ASKED,
            interaction_id=name,
            ended_at=time.time(),
            prompt_ids=prompt_ids,
            token_ids=drawn.token_ids,
            logprobs=drawn.logprobs,
            reply=str(drawn.reply["content"]),
        )
        add_turn(self.journal, turn, is_ready=True)
        add_next_state(self.journal, name, NextStateKind.USER_REPLY, user("Use bold please."))
        with self.journal.write() as session:
            record_judgement(session, judgement(name, -1, "Use bold."), NEXT_STATE)
        return name

    def group(self, name: str) -> ShadowGroupRow:
        with self.journal.read() as session:
            return session.get_one(ShadowGroupRow, name)

    async def drawn(self, name: str) -> None:
        """Try until the group is drawn, because the engine may still be busy with an earlier test."""
        for _ in range(100):
            await self.drawer.run_once()
            with self.journal.read() as session:
                row = session.get(ShadowGroupRow, name)
            if row is not None and row.state != "drawing":
                return
            await asyncio.sleep(0.2)


@pytest.fixture
async def world(tmp_path: Path, vllm_server: VllmServer) -> AsyncIterator[World]:
    made = World(tmp_path, vllm_server)
    yield made
    await made.source.close()


async def test_a_group_is_drawn_with_the_engines_own_tokens_and_no_grade_is_invented(
    world: World, vllm_server: VllmServer
) -> None:
    name = await world.live_turn()
    await world.drawn(name)
    assert world.group(name).state == "drawn", world.group(name).reason
    policy = Policy.load(vllm_server.model, rank=4, alpha=8, seed=1, device="cpu")
    with world.journal.read() as session:
        rows = shadows.members_of(session, name)
    prompt_ids, _ = await world.source.draw(vllm_server.base_name, ASKED, (), 1.0, 1)
    texts = [Text(list(prompt_ids), list(from_bytes("i", row.token_ids))) for row in rows]
    for row, found in zip(rows, policy.logprobs(texts), strict=True):
        assert list(from_bytes("f", row.logprobs)) == pytest.approx(found.tolist(), abs=1e-3)
    # The sandbox's base has learned to judge by next states. It writes no line that the rubric's parser accepts.
    judge = LocalJudge(vllm_server.url, vllm_server.base_name, api_key=vllm_server.api_key, max_tokens=64, timeout=60.0)
    grader = Grader(world.journal, Panel([judge], 60.0), config.Judge(votes=3), random.Random(1))
    assert await grader.run_once() == 1
    await judge.close()
    row = world.group(name)
    assert (row.state, row.score, row.votes) == ("dropped", None, [None] * 3)
    assert (row.reason or "").startswith("the judge abstained: 0 of 3 votes could be read")
    assert (row.judge_id or "").startswith(f"{vllm_server.base_name}/")


async def test_a_group_is_scored_by_the_wish_without_a_judge(tmp_path: Path, vllm_server: VllmServer) -> None:
    world = World(tmp_path, vllm_server, "likelihood")
    name = await world.live_turn()
    await world.drawn(name)
    assert world.group(name).state == "drawn", world.group(name).reason
    policy = Policy.load(vllm_server.model, rank=4, alpha=8, seed=1, device="cpu")
    judge = LocalJudge(vllm_server.url, vllm_server.base_name, api_key=vllm_server.api_key, max_tokens=64, timeout=60.0)
    assert await Grader(world.journal, Panel([judge], 60.0), config.Judge(votes=3), random.Random(1)).run_once() == 0
    await judge.close()
    assert HintGrader(world.journal, "agent", policy).grade(8) == 1
    with world.journal.read() as session:
        scores = [world.group(name).score, *(row.score for row in shadows.members_of(session, name))]
    assert len(scores) == 4 and all(score is not None and 0.0 <= score <= 1.0 for score in scores)
    assert (world.group(name).judge_id or "").startswith("wish/")
    await world.source.close()


async def test_the_engine_says_how_busy_it_is(world: World) -> None:
    long = asyncio.create_task(world.source.draw(BASE_NAME, [user("Count from 0 to 99.")], (), 0.3, 600))
    seen = 0
    while not long.done() and not seen:
        seen = await world.source.n_requests()
    assert seen == 1
    assert await world.drawer._idle() is None
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    for _ in range(100):
        if await world.source.n_requests() == 0:
            break
        await asyncio.sleep(0.1)
    assert await world.source.n_requests() == 0  # a cancelled request no longer counts
