"""The swapper on a fake engine: good versions go live, others are unloaded, and a restart undoes nothing."""

import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from swap_world import ACCEPTED, PROMPTS, World

from burnish import config, serving_table
from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import prepare, refresh
from burnish.adapters.verbs import releases
from burnish.errors import AdapterError, Conflict, EngineError, EngineUnavailable, NotFound
from burnish.journal import Journal, jobs
from burnish.journal.tables import AuditRow, LoadJob
from burnish.server.rollout import swapper, unloading
from burnish.server.rollout.forgetting_prompts import RetentionPrompt, RetentionSet
from tests.factories import interaction, user
from tests.fakes import BASE, PARENT, make_version
from tests.turns import add_turn


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path / "state")


async def test_a_good_candidate_goes_live(world: World) -> None:
    prompt = array("i", [5, 6, 7])
    add_turn(world.journal, interaction([user("a")], prompt_ids=prompt))
    world.announce(1)
    assert await world.swapper.run_once()
    assert world.live() == 1
    assert (world.route().previous, world.route().loaded) == (0, (1,))
    assert world.engine.loaded == {"agent@v1": str(world.store.path("agent", 1))}
    assert world.outcome(1) == ("published", True)
    row = world.version(1)
    assert (row.state, row.evidence["retention"]["n"], row.evidence["probe"]["gap_to_candidate"]) == ("live", 64, 0.0)
    assert world.job("agent@v1").state == "done"
    assert world.engine.calls[-1] == ("next_logprobs", "agent@v1")  # warmed with the newest prompts
    assert not await world.swapper.run_once()
    assert world.engine.n_calls("load") == 1


async def test_nothing_is_served_before_the_trial_is_over(world: World) -> None:
    seen: list[int] = []
    world.engine.fails = lambda method, name: seen.append(world.live())
    world.announce(1)
    await world.swapper.run_once()
    assert set(seen) == {0}


def alter(world: World) -> None:
    file = world.store.path("agent", 1) / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def serve(values: tuple[float, ...]) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.engine.values["agent@v1"] = values

    return change


def forget(n: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        lost = {f"question {i}" for i in range(n)}
        world.engine.replies = lambda model, text: "what?" if model.endswith("@v1") and text in lost else "ok"

    return change


def refuse(world: World) -> None:
    world.engine.refuse("load")


REFUSED = ("refused", True)


@pytest.mark.parametrize(
    ("fault", "said", "outcome"),
    [
        (alter, "was altered", REFUSED),
        (serve(BASE), "nearer to the base", REFUSED),
        (serve(PARENT), "nearer to the parent", REFUSED),
        (serve((-1.0015, -2.0)), "differ by 1.50e-03", REFUSED),
        (serve((float("nan"), -2.0)), "differ by inf", REFUSED),
        (refuse, "the engine refused it: load: the engine answered 400", REFUSED),
        (forget(3), "unlearned 3 of 64", ("superseded", False)),  # its rows come once more
    ],
)
async def test_a_bad_candidate_is_refused_with_the_reason_and_leaves_nothing(
    world: World, fault: Callable[[World], None], said: str, outcome: tuple[str, bool]
) -> None:
    world.announce(1)
    fault(world)
    assert await world.swapper.run_once()
    assert world.live() == 0
    assert (world.engine.loaded, world.route().loaded) == ({}, ())
    row = world.version(1)
    assert row.state == "refused"
    assert said in row.reason
    assert world.outcome(1) == outcome
    assert world.job("agent@v1").state == "done"
    world.engine.come_back()
    await world.publish(2)  # the next one gets its chance


async def test_two_forgotten_prompts_are_tolerated(world: World) -> None:
    forget(2)(world)
    await world.publish(1)
    found = world.version(1).evidence["retention"]
    assert found["n_lost"] + found["n_open"] == 2  # the maximum of 64 that is tolerated


async def test_what_the_base_cannot_do_either_is_not_held_against_a_candidate(world: World) -> None:
    more = [RetentionPrompt([user(f"hard {i}")], (), re.compile("ok")) for i in range(20)]
    world.swapper._trial._retention = RetentionSet([*more, *PROMPTS])
    world.engine.replies = lambda model, text: "what?" if text.startswith("hard") else "ok"
    await world.publish(1)
    found = world.version(1).evidence["retention"]
    assert (found["n"], found["n_lost"]) == (len(PROMPTS), 0)


async def test_too_few_retention_prompts_pass_nobody(world: World) -> None:
    world.swapper._trial._retention = RetentionSet(PROMPTS[:63])
    world.announce(1)
    await world.swapper.run_once()
    assert world.live() == 0
    assert "insufficient evidence" in world.version(1).reason


async def test_no_version_passes_fewer_acceptance_prompts_than_the_best_one(world: World) -> None:
    """Four small losses in a row cannot bypass the margin, and a refused version is no reference."""
    world.swapper._trial._acceptance = RetentionSet(ACCEPTED, digest="d", temperature=1.0)
    world.swapper._trial._acceptance_margin = 0.1
    keeps = {"agent@v1": 4, "agent@v2": 8, "agent@v3": 7, "agent@v4": 6, "agent@v5": 9}
    world.engine.replies = lambda model, text: (
        "ok" if not text.startswith("accept") or int(text.split()[1]) < keeps[model] else "no"
    )
    await world.publish(1, 2, 3)
    drawn = {name: {(t, seed) for model, t, seed in world.engine.drawn if model == name and t} for name in keeps}
    assert drawn["agent@v1"] == drawn["agent@v2"] == {(1.0, place) for place in range(10)}
    world.announce(4, 3)
    await world.swapper.run_once()
    assert world.live() == 3
    assert world.version(4).reason.startswith("6 of 10 replies to acceptance prompts passed, the best version so far 8")
    world.announce(5, 3)
    await world.swapper.run_once()
    assert world.live() == 5
    assert world.version(5).evidence["acceptance"] == {
        "n": 10,
        "n_passed": 9,
        "n_best": 8,
        "margin": 0.1,
        "digest": "d",
        "n_live": 7,
    }


async def test_the_base_is_asked_once(world: World) -> None:
    await world.publish(1, 2)
    assert sum(call == ("chat", "base") for call in world.engine.calls) == N_BASE_ANSWERS * len(PROMPTS)


async def test_a_version_is_on_every_engine_or_on_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path / "state", n_engines=2)
    await world.publish(1)
    assert [set(engine.loaded) for engine in world.engines] == [{"agent@v1"}] * 2
    world.announce(2)
    world.engines[1].refuse("load")
    await world.swapper.run_once()
    assert [set(engine.loaded) for engine in world.engines] == [{"agent@v1"}] * 2
    world.announce(3)
    world.engines[1].come_back()
    world.engines[1].values["agent@v3"] = BASE  # loaded, but not applied
    await world.swapper.run_once()
    assert world.version(3).state == "refused"
    assert world.live() == 1


@pytest.mark.parametrize("method", [None, "models", "load", "next_logprobs", "chat"])
async def test_an_engine_that_is_away_postpones_the_trial_and_decides_nothing(world: World, method: str | None) -> None:
    world.announce(1)
    world.engine.be_away(method)
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await world.swapper.run_once()
        world.make_due()
    assert world.version(1).state == "candidate"
    assert world.outcome(1) == ("open", False)
    assert world.live() == 0
    world.engine.come_back()
    world.make_due()
    assert await world.swapper.run_once()
    assert world.live() == 1


async def test_while_the_engine_is_away_the_swapper_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.announce(1)
    world.engine.be_away()
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            world.engine.come_back()

    monkeypatch.setattr(swapper.asyncio, "sleep", nap)
    await world.swapper.run_forever(lambda: len(naps) > 2 and world.live() == 1)
    assert naps[:3] == [1.0] * 3
    assert world.live() == 1


async def test_an_engine_that_refuses_to_be_asked_is_waited_for_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.announce(1)
    models = world.engine.models
    naps: list[float] = []

    async def refuses() -> list[str]:
        raise EngineError("GET /v1/models: the engine answered 401")

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        monkeypatch.setattr(world.engine, "models", models)

    monkeypatch.setattr(world.engine, "models", refuses)
    monkeypatch.setattr(swapper.asyncio, "sleep", nap)
    await world.swapper.run_forever(lambda: bool(naps) and world.live() == 1)
    assert world.live() == 1


async def test_after_an_outage_of_the_journal_the_process_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal goes away between the promotion and the serving table. The next begin writes the table."""
    from burnish.server.rollout import process

    world.announce(1)
    sync = publish.sync
    n_works: list[Journal] = []

    async def work(settings: config.Settings, is_stopping: Callable[[], bool]) -> None:
        n_works.append(prepare(settings))
        await world.restarted().run_once()

    def breaks(*_: object, **__: object) -> None:
        monkeypatch.setattr(publish, "sync", sync)
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(publish, "sync", breaks)
    monkeypatch.setattr(process, "_work", work)
    monkeypatch.setattr("burnish.journal.outage.FIRST_PAUSE", 0.0)
    await process.run(world.settings, lambda: len(n_works) == 2)
    assert (world.live(), world.route().loaded) == (1, (1,))


async def test_an_engine_that_came_back_empty_gets_its_versions_again_before_anything_else(world: World) -> None:
    await world.publish(1, 2)
    world.engine.loaded.clear()
    world.engine.calls.clear()
    world.announce(3, 2)
    await world.swapper.run_once()
    loads = [name for method, name in world.engine.calls if method == "load"]
    assert loads == ["agent@v1", "agent@v2", "agent@v3"]


async def test_a_restarted_swapper_restores_what_is_served(world: World) -> None:
    await world.publish(1, 2)
    world.engine.loaded.clear()
    await world.restarted().run_once()
    assert set(world.engine.loaded) == {"agent@v1", "agent@v2"}
    assert world.live() == 2


async def test_a_swapper_that_died_between_the_two_pointers_is_put_right_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry says v1, the serving table still says the base."""
    world.announce(1)

    class Killed(BaseException): ...

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(publish, "sync", dies)
        with pytest.raises(Killed):
            await world.swapper.run_once()
    assert world.route().live == 0
    refresh(world.settings, world.journal)
    assert world.live() == 1
    assert world.route().loaded == (1,)
    assert not await world.restarted().run_once()


async def test_an_old_version_is_unloaded_only_when_no_gateway_can_ask_for_it(world: World) -> None:
    await world.publish(1, 2)
    world.gateway_reports(**{"agent@v1": 1})
    await world.publish(3)
    flipped = serving_table.watch(world.file).current().generation
    for generation, in_flight in (
        (flipped - 1, {}),
        (flipped, {"agent@v1": 1}),
        (flipped, {"agent@v1": 2, "agent@v3": 1}),
    ):
        world.gateway_reports(generation, **in_flight)
        await world.swapper.run_once()
        assert "agent@v1" in world.engine.loaded
        assert 1 in world.route().loaded
    world.gateway_reports(flipped + 1, **{"agent@v3": 5})
    await world.swapper.run_once()
    assert set(world.engine.loaded) == {"agent@v2", "agent@v3"}
    assert world.route().loaded == (2, 3)


async def off_the_table(world: World) -> None:
    """v1 is off the table, and no gateway has seen that yet."""
    await world.publish(1, 2)
    world.gateway_reports()
    await world.publish(3)
    world.gateway_reports(serving_table.watch(world.file).current().generation)
    await world.swapper.run_once()
    assert world.route().loaded == (2, 3)


async def test_a_request_that_slipped_in_while_unloading_is_waited_for(world: World) -> None:
    """The table without v1 is written first.

    v1 is unloaded only after every gateway has seen it. Nothing waits for that.
    """
    await off_the_table(world)
    for _ in range(3):
        await world.swapper.run_once()
        assert "agent@v1" in world.engine.loaded
    world.gateway_reports()
    await world.swapper.run_once()
    assert "agent@v1" not in world.engine.loaded


async def test_a_gateway_that_never_lets_go_keeps_the_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await off_the_table(world)
    monkeypatch.setattr(unloading, "PATIENCE", 0.0)
    world.swapper._unloader._off = {name: (seen, 0.0) for name, (seen, _) in world.swapper._unloader._off.items()}
    await world.swapper.run_once()
    assert "agent@v1" in world.engine.loaded
    assert world.route().loaded == (1, 2, 3)


async def test_a_version_promoted_while_it_is_being_unloaded_stays(world: World) -> None:
    await off_the_table(world)
    releases.promote(world.settings, world.journal, "agent", 1, actor="cli")
    await world.swapper.run_once()
    assert world.live() == 1
    world.gateway_reports()
    for _ in range(3):
        await world.swapper.run_once()
    assert "agent@v1" in world.engine.loaded
    assert 1 in world.route().loaded


async def test_what_a_killed_swapper_left_on_an_engine_is_unloaded_by_the_next(world: World) -> None:
    await off_the_table(world)
    world.gateway_reports()
    await world.restarted().run_once()
    assert set(world.engine.loaded) == {"agent@v2", "agent@v3"}


async def test_a_rollback_moves_a_pointer_and_asks_no_engine(world: World) -> None:
    await world.publish(1, 2)
    world.engine.calls.clear()
    said = releases.rollback(world.settings, world.journal, "agent", to=None, actor="cli", reason="worse")
    assert said == "agent@v1 is live (was v2)"
    assert world.live() == 1
    assert world.route().previous == 2
    assert world.engine.calls == []
    with world.journal.read() as session:
        last = session.query(AuditRow).order_by(AuditRow.audit_id.desc()).first()  # type: ignore[union-attr]
        assert last is not None
        assert (last.actor, last.before, last.after, last.reason) == ("cli", "2", "1", "worse")
    releases.rollback(world.settings, world.journal, "agent", to=0, actor="cli")
    assert world.live() == 0
    assert world.engine.calls == []


async def test_an_operator_promotes_a_version_that_no_engine_has(world: World) -> None:
    await world.publish(1, 2, 3)
    await world.swapper.run_once()
    assert "agent@v1" not in world.engine.loaded
    said = releases.promote(world.settings, world.journal, "agent", 1, actor="ana")
    assert "is being loaded" in said
    assert world.live() == 3
    await world.swapper.run_once()
    assert world.live() == 1
    assert set(world.engine.loaded) >= {"agent@v1", "agent@v3"}
    assert world.route().previous == 3
    await world.swapper.run_once()
    again = releases.promote(world.settings, world.journal, "agent", 2, actor="ana")
    assert "is being loaded" in again or "is live" in again
    await world.swapper.run_once()
    assert world.live() == 2


async def test_the_same_version_can_be_loaded_by_hand_again_and_again(world: World) -> None:
    await world.publish(1, 2, 3)
    for _ in range(2):
        await world.swapper.run_once()
        releases.promote(world.settings, world.journal, "agent", 1, actor="ana")
        await world.swapper.run_once()
        assert world.live() == 1
        for number in (2, 3):
            releases.promote(world.settings, world.journal, "agent", number, actor="ana")
            await world.swapper.run_once()
        assert world.live() == 3
        await world.swapper.run_once()


async def test_an_operator_cannot_get_round_the_gate_or_the_facts(world: World) -> None:
    await world.publish(1)
    world.announce(2)
    promote = releases.promote
    with pytest.raises(Conflict, match="still on trial"):
        promote(world.settings, world.journal, "agent", 2, actor="ana")
    with pytest.raises(NotFound, match="no version agent@v9"):
        promote(world.settings, world.journal, "agent", 9, actor="ana")
    with pytest.raises(NotFound, match="no agent 'nobody'"):
        promote(world.settings, world.journal, "nobody", 1, actor="ana")
    with pytest.raises(Conflict, match="expected v0 to be live, found v1"):
        promote(world.settings, world.journal, "agent", 0, actor="ana", expected=0)
    assert promote(world.settings, world.journal, "agent", 1, actor="ana") == "agent@v1 is live already"
    with pytest.raises(Conflict, match="is live already"):
        releases.rollback(world.settings, world.journal, "agent", to=1, actor="ana")
    assert world.live() == 1


async def test_a_damaged_version_is_not_even_queued(world: World) -> None:
    await world.publish(1, 2, 3)
    await world.swapper.run_once()
    alter(world)
    with pytest.raises(AdapterError, match=r"agent@v1 cannot be served: .*was altered"):
        releases.promote(world.settings, world.journal, "agent", 1, actor="ana")
    with world.journal.read() as session:
        assert session.get(LoadJob, "agent@v1#promote") is None


async def test_a_candidate_does_not_undo_a_rollback_by_hand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.publish(1)
    world.announce(2)
    retention = world.swapper._trial._retention.compare

    async def slow(*args: Any) -> Any:
        releases.rollback(world.settings, world.journal, "agent", to=0, actor="ana")
        monkeypatch.undo()
        return await retention(*args)

    monkeypatch.setattr(world.swapper._trial._retention, "compare", slow)
    await world.swapper.run_once()
    assert (world.live(), world.version(2).state) == (0, "candidate"), "somebody was faster"
    world.make_due()
    await world.swapper.run_once()
    assert (world.live(), world.version(2).state) == (0, "refused")
    assert world.version(2).reason == "it was trained from v1, and v0 was made live meanwhile"
    assert world.outcome(2) == ("superseded", False), "its rows come again"
    assert world.engine.loaded.keys() <= {"agent@v1"}
    await world.publish(3)  # trained from what is live


@pytest.mark.parametrize("method", ["chat"])
async def test_a_candidate_that_the_engine_will_not_answer_for_is_refused(world: World, method: str) -> None:
    world.announce(1)
    world.engine.refuse(method)
    await world.swapper.run_once()
    assert world.version(1).state == "refused"


async def test_a_version_that_cannot_be_warmed_goes_live_all_the_same(world: World) -> None:
    add_turn(world.journal, interaction([user("a")], prompt_ids=array("i", [5] * 9)))
    world.announce(1)
    world.engine.fails = lambda method, name: (
        EngineError("400: too long")
        if method == "next_logprobs" and world.engine.n_calls("next_logprobs") > 2
        else None
    )
    assert await world.swapper.run_once()
    assert world.live() == 1
    assert world.engine.n_calls("next_logprobs") == 3  # two of the probe, and the refused one


async def test_a_refused_version_that_cannot_be_unloaded_stops_nothing_and_goes_at_the_next_start(world: World) -> None:
    world.engine.values["agent@v1"] = (-5.0, -5.0)
    world.engine.refuse("unload")
    world.announce(1)
    assert await world.swapper.run_once()
    assert (world.version(1).state, world.outcome(1)) == ("refused", ("refused", True))
    world.announce(2)
    assert await world.swapper.run_once()
    assert world.live() == 2
    assert "agent@v1" in world.engine.loaded
    world.engine.come_back()
    world.gateway_reports()
    await world.restarted().run_once()
    assert set(world.engine.loaded) == {"agent@v2"}


async def test_a_version_that_cannot_be_restored_does_not_stop_the_others(world: World) -> None:
    await world.publish(1, 2)
    world.engine.loaded.clear()
    (world.store.path("agent", 1) / "adapter_model.safetensors").unlink()
    world.announce(3, 2)
    await world.swapper.run_once()
    assert world.live() == 3


@pytest.mark.parametrize("fault", [alter, refuse])
async def test_an_operators_promotion_that_fails_is_given_up(world: World, fault: Callable[[World], None]) -> None:
    await world.publish(1, 2, 3)
    await world.swapper.run_once()
    releases.promote(world.settings, world.journal, "agent", 1, actor="ana")
    fault(world)
    await world.swapper.run_once()
    assert world.live() == 3
    with world.journal.read() as session:
        assert jobs.counts(session, LoadJob).get("dead") == 1


@pytest.mark.parametrize("probe", [b"{}", b"no json", None])
async def test_a_candidate_without_a_readable_probe_is_refused(world: World, probe: bytes | None) -> None:
    world.announce(1)
    directory = world.store.path("agent", 1)
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    if probe is None:
        from tests.adapters.files.test_store import publish

        publish(world.store, 1)
    else:
        make_version(world.store, 1, **{"probe.json": probe})
    await world.swapper.run_once()
    assert world.version(1).state == "refused"


async def test_a_restarted_swapper_goes_on_draining(world: World) -> None:
    await world.publish(1, 2)
    world.gateway_reports(**{"agent@v1": 1})
    await world.publish(3)
    world.gateway_reports(serving_table.watch(world.file).current().generation + 5)
    await world.restarted().run_once()
    assert set(world.engine.loaded) == {"agent@v2", "agent@v3"}


async def test_a_version_promoted_in_the_moment_of_its_unloading_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.publish(1, 2)
    world.gateway_reports(**{"agent@v1": 1})
    await world.publish(3)
    (world.file.parent / "gateway-1.json").unlink()
    is_drained, n_asked = unloading.is_drained, []

    def promoted_meanwhile(run_dir: Path, model: str, generation: int) -> bool:
        if not n_asked:
            n_asked.append(1)
            releases.promote(world.settings, world.journal, "agent", 1, actor="ana")
        return is_drained(run_dir, model, generation)

    monkeypatch.setattr(unloading, "is_drained", promoted_meanwhile)
    await world.swapper.run_once()
    assert world.live() == 1
    assert 1 in world.route().loaded
    assert "agent@v1" in world.engine.loaded
