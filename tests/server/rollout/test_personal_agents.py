"""Personal agents from the first turn on: real gateway, ingester, swapper and SQLite, scripted engine."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from personal_world import World
from sqlalchemy import select

from burnish import serving_table
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.personal import family_of, name_of
from burnish.adapters.serving.prepare import prepare
from burnish.config import Engine, Personal
from burnish.errors import EngineUnavailable
from burnish.journal.tables import AgentRow, InteractionRow, LoadJob, VersionRow
from burnish.keys import Scope, mint
from burnish.server.gateway import routing
from burnish.server.ingest import personal_requests
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.swapper import Swapper
from burnish.testing import StubEngine
from tests.fakes import FakeEngine
from tests.server.gateway.gateways import ENGINE_KEY, make_keys, serve, write_table

ANA, BEN = name_of("default", "agent", "ana"), name_of("default", "agent", "ben")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    personal = Personal(enabled=True, max_agents=2)
    with StubEngine(api_key=ENGINE_KEY) as engine, serve(tmp_path, engine, personal=personal) as gateway:
        engine_settings = Engine(urls=(engine.url,), api_key=ENGINE_KEY)
        settings = gateway.settings.model_copy(update={"engine": engine_settings})
        write_table(settings, (engine.url,), make_keys()[1], agents={})
        made = World(gateway, settings)
        try:
            yield made
        finally:
            made.journal.close()


def test_a_users_agent_branches_from_what_its_parent_is(world: World) -> None:
    world.parent_is(1)
    assert world.ask("ana") == "agent@v1"
    world.settle()
    assert world.ask("ana") == f"{ANA}@v1"
    assert world.ask("ben") == "agent@v1"
    assert world.ask() == "agent@v1"
    with world.journal.read() as session:
        row, version = session.get_one(AgentRow, ANA), session.get_one(VersionRow, (ANA, 1))
    assert (row.parent, row.user, row.tenant) == ("agent", "ana", "default")
    assert (version.origin, version.parent_agent, version.parent, version.state) == ("branch", "agent", 1, "live")
    weights = [world.store.path(agent, 1) / "adapter_model.safetensors" for agent in ("agent", ANA)]
    assert weights[0].stat().st_ino == weights[1].stat().st_ino
    assert world.store.verify(ANA, 1)["parent_agent"] == "agent"


def test_its_turns_are_its_own_and_those_before_are_its_parents(world: World) -> None:
    world.parent_is(1)
    for _ in range(2):
        world.ask("ana")
        world.settle()
    assert world.turns() == [("agent", 1, "ana"), (ANA, 1, "ana")]


def test_where_the_parent_is_the_base_so_is_the_branch(world: World) -> None:
    assert world.ask("ana") == "agent@v0"
    world.settle()
    assert world.ask("ana") == f"{ANA}@v0"
    assert world.gateway.engine.requests[-1]["model"] == "base"
    with world.journal.read() as session:
        assert lifecycle.versions(session, ANA) == []


def test_a_header_names_the_user_as_well(world: World) -> None:
    for expected in ("agent@v0", f"{ANA}@v0"):
        reply = world.gateway.chat(world.back_end, headers={"x-burnish-user": "ana"})
        assert reply.headers["x-burnish-version"] == expected
        world.settle()


def test_who_names_a_version_gets_it(world: World) -> None:
    world.parent_is(1)
    world.ask("ana")
    world.settle()
    assert world.ask("ana", model="agent@v1") == "agent@v1"
    assert world.ask("ana", model="base") == "base"


def test_nobody_can_ask_for_another_users_agent(world: World) -> None:
    world.ask("ana")
    world.settle()
    assert ANA in world.table()
    for name in (ANA, f"{ANA}@v0"):
        assert world.gateway.chat(world.back_end, user="ben", model=name).status_code == 404
    with world.gateway.client() as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["agent", "agent@v0", "base"]


def test_the_same_user_of_another_tenant_is_another_person(world: World) -> None:
    with world.journal.write() as session:
        lifecycle.ensure_agent(session, "theirs", "other")
    prepare(world.settings).close()
    secret, key = mint([Scope.INFERENCE, Scope.USERS], tenant="other")
    serving_table.update(world.file, lambda table: serving_table.replace(table, keys={**table.keys, key.digest: key}))
    world.ask("ana")
    world.ask("ana", key=secret, model="theirs")
    world.settle()
    other = name_of("other", "theirs", "ana")
    assert world.ask("ana", key=secret, model="theirs") == f"{other}@v0"
    assert world.table()[other].tenant == "other"
    assert name_of("other", "agent", "ana") != ANA


def test_two_users_whose_agents_would_share_a_name_do_not_share_an_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (routing, personal_requests):
        monkeypatch.setattr(module, "name_of", lambda tenant, agent, user: ANA)
    world.parent_is(1)
    for user in ("ana", "ben"):
        world.ask(user)
        world.settle()
    assert world.ask("ana") == f"{ANA}@v1"
    assert world.ask("ben") == "agent@v1"
    world.settle()
    with world.journal.read() as session:
        assert session.get_one(AgentRow, ANA).user == "ana"
        turns = session.query(InteractionRow).where(InteractionRow.agent == ANA)
        assert {row.user for row in turns} == {"ana"}


def test_the_least_used_leaves_when_there_are_too_many_and_comes_back(world: World) -> None:
    world.parent_is(1)
    for user in ("ana", "ben"):
        world.ask(user)
        world.settle()
    world.unused_for(ANA, 1)
    world.ask("cleo")
    world.settle()
    cleo = name_of("default", "agent", "cleo")
    assert set(world.table()) == {"agent", BEN, cleo}
    assert world.ask("ana") == "agent@v1"
    time.sleep(0.6)
    world.unused_for(BEN, 1)
    world.settle()
    assert world.ask("ana") == f"{ANA}@v1"
    assert set(world.table()) == {"agent", ANA, cleo}
    with world.journal.read() as session:
        assert [row.version for row in lifecycle.versions(session, ANA)] == [1]


def test_while_there_is_room_nobody_leaves(tmp_path: Path) -> None:
    personal = Personal(enabled=True, max_agents=6)
    with StubEngine(api_key=ENGINE_KEY) as engine, serve(tmp_path, engine, personal=personal) as gateway:
        chosen = Engine(urls=(engine.url,), api_key=ENGINE_KEY)
        settings = gateway.settings.model_copy(update={"engine": chosen})
        write_table(settings, (engine.url,), make_keys()[1], agents={})
        world = World(gateway, settings)
        for n in range(1, 6):
            world.ask(f"user-{n}")
            world.settle()
            assert len(world.table()) == n + 1
        world.journal.close()


def test_an_idle_one_is_unloaded_once_the_gateways_know(world: World) -> None:
    world.parent_is(1)
    world.ask("ana")
    world.settle()
    world.unused_for(ANA, 25)
    world.settle(1)
    assert set(world.table()) == {"agent"}
    time.sleep(0.6)  # the gateway's next report
    world.settle(2)
    assert set(world.gateway.engine.loaded) == {"agent@v1"}


def test_a_conversation_goes_on_from_its_parents_turn(world: World) -> None:
    asked = [{"role": "user", "content": "first"}]
    said = world.gateway.chat(world.back_end, user="ana", messages=asked).json()["choices"][0]["message"]["content"]
    world.settle()
    more = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "second"}]
    assert world.ask("ana", messages=more) == f"{ANA}@v0"
    world.settle()
    with world.journal.read() as session:
        first, second = sorted(session.scalars(select(InteractionRow)).all(), key=lambda row: row.ended_at)
    assert second.parent_id == first.interaction_id
    assert second.session_id == first.session_id


def test_a_name_that_nobody_proved_gets_no_agent_made(world: World) -> None:
    assert world.gateway.chat(user="ana").status_code == 200
    world.settle()
    assert set(world.table()) == {"agent"}
    assert world.turns() == [("agent", 0, None)]


def test_who_opts_out_gets_no_agent_made(world: World) -> None:
    world.gateway.chat(world.back_end, user="ana", headers={"x-burnish-train": "false"})
    world.settle()
    assert set(world.table()) == {"agent"}


async def test_a_branch_that_a_crash_interrupted_is_finished(world: World) -> None:
    """Its row and files exist and the engine is absent: nothing is live, and the next try completes the work."""
    world.parent_is(1)
    world.ask("ana")
    await asyncio.sleep(0.06)
    world.ingester.run_once()
    engine = FakeEngine()
    engine.be_away("load")
    swapper = Swapper(
        world.journal,
        world.store,
        [engine],
        world.file,
        base_name="base",
        tolerance=1e-3,
        retention=RetentionSet(()),
        retention_margin=0.1,
        personal=world.settings.personal,
    )
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await swapper._personal_agents.wake(ANA)
        assert ANA not in world.table()
    with world.journal.read() as session:
        assert session.get_one(VersionRow, (ANA, 1)).state == "candidate"
        assert lifecycle.alias(session, ANA) == 0
        assert session.get_one(LoadJob, f"{ANA}#wake").state == "queued"
    engine.come_back()
    await swapper._personal_agents.wake(ANA)
    assert world.table()[ANA].live == 1


def test_names_do_not_tell_who_it_is() -> None:
    assert "ana" not in ANA.removeprefix("agent")
    assert family_of(ANA) == "agent"
    assert family_of("agent") == "agent"
    assert family_of("my.u-agent") == "my.u-agent"
