"""File retention with a real journal, store and serving table: used files stay, removed ones are gone, crashes heal."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from swap_world import World

from burnish import config
from burnish.adapters.files.retention import FileRetention
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle, versions
from burnish.adapters.serving.prepare import prepare
from burnish.errors import AdapterError, Conflict, NotFound
from burnish.journal import Journal
from burnish.journal.tables import AuditRow, CanaryRow, InteractionRow, LoadJob, StepRow
from tests.postgres import running


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Six versions: the sixth is live, the fifth previous, the others are no longer loaded."""
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path / "state")
    await world.publish(1, 2, 3, 4, 5, 6)
    await world.swapper.run_once()
    assert set(world.route().loaded) == {5, 6}
    return world


def file_retention(world: World, **settings: object) -> FileRetention:
    chosen = config.Versions(**{"keep_live": 1, "keep_refused_days": 1.0, **settings})  # type: ignore[arg-type]
    return FileRetention(world.settings.model_copy(update={"versions": chosen}), world.journal)


def names(world: World) -> list[str]:
    return sorted(path.name for path in (world.store.root / "agent").iterdir())


def kept(world: World) -> list[int]:
    return world.store.versions("agent")


def removed(world: World) -> list[int]:
    with world.journal.read() as session:
        return [row.version for row in lifecycle.versions(session, "agent") if row.removed_at is not None]


async def test_old_versions_go_and_their_records_stay(world: World) -> None:
    told = file_retention(world).remove("agent", actor="ana")
    assert told.is_done and sorted(told.plan.remove) == removed(world) == [1, 2, 3]
    assert kept(world) == [4, 5, 6]
    assert names(world) == [".past", "v000004", "v000005", "v000006"]
    with world.journal.read() as session:
        assert versions.next_number(session, "agent") == 7
        assert session.get_one(InteractionRow, "row-1").spent_step is not None
        last = session.query(AuditRow).order_by(AuditRow.audit_id.desc()).first()  # type: ignore[union-attr]
        assert last is not None
        assert (last.actor, last.action, last.object) == ("ana", "remove", "agent@v3")
    assert file_retention(world).remove("agent", actor="ana").plan.remove == {}
    assert world.live() == 6


async def test_the_regular_look_leaves_the_quarantine_alone(world: World) -> None:
    names = [f"{agent}@v000009-20260101T000000.000000000Z" for agent in ("agent", "other")]
    left = [world.store.root / "quarantine" / name for name in names]
    for folder in left:
        folder.mkdir(parents=True)
    assert file_retention(world).remove_all()[0].quarantined == () and all(folder.exists() for folder in left)
    assert file_retention(world).remove("agent", actor="ana").quarantined == names[:1]
    assert [folder.exists() for folder in left] == [False, True]


async def test_looking_changes_nothing(world: World) -> None:
    told = file_retention(world).remove("agent", actor="ana", is_dry=True)
    assert (sorted(told.plan.remove), told.is_done, removed(world), kept(world)) == (
        [1, 2, 3],
        False,
        [],
        [1, 2, 3, 4, 5, 6],
    )
    with pytest.raises(NotFound):
        file_retention(world).remove("nobody", actor="ana")


async def test_what_is_used_anywhere_stays(world: World) -> None:
    with world.journal.write() as session:
        versions.set_pinned(session, "agent", 1, True, actor="ana")
        session.add(
            CanaryRow(agent="agent", version=6, baseline=2, kind="watch", share=1.0, state="running", started_at=1.0)
        )
        session.add(StepRow(agent="agent", version=7, parent=3, outcome="open", metrics={}, started_at=1.0))
    world.gateway_reports(**{"agent@v4": 1, "other@v1": 3})
    told = file_retention(world, keep_live=0).remove("agent", actor="ana").plan
    assert told.remove == {} and kept(world) == [1, 2, 3, 4, 5, 6]
    assert told.keep[4] == "a request is under way on it"
    (world.file.parent / "gateway-1.json").write_text("{")
    assert set(file_retention(world, keep_live=0).remove("agent", actor="ana", is_dry=True).plan.keep.values()) == {
        "nobody knows what the gateways are answering"
    }


async def test_a_version_that_comes_into_use_in_that_moment_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = file_retention(world)
    plan = first._plan

    def promoted_meanwhile(*arguments: object) -> object:
        made = plan(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        with world.journal.write() as session:
            lifecycle.promote(session, "agent", 2, expected=6, actor="ana")
        return made

    monkeypatch.setattr(first, "_plan", promoted_meanwhile)
    told = first.remove("agent", actor="retention").plan
    assert sorted(told.remove) == [1, 3] and told.keep[2] == "came into use meanwhile"
    assert 2 in kept(world)


async def test_what_is_removed_cannot_be_promoted(world: World) -> None:
    from burnish.adapters.verbs import releases

    file_retention(world).remove("agent", actor="ana")
    for call in (releases.promote, lambda *a, **k: releases.rollback(*a[:3], to=a[3], **k)):
        with pytest.raises(Conflict, match=r"agent@v2 was removed on .* only its record is left"):
            call(world.settings, world.journal, "agent", 2, actor="ana")
    assert world.live() == 6


async def test_a_crash_at_any_point_is_mended_at_the_next_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException): ...

    def dies(*_: object, **__: object) -> None:
        raise Killed

    for place, name in ((AdapterStore, "remove"), (shutil, "rmtree")):
        with monkeypatch.context() as broken:
            broken.setattr(place, name, dies)
            with pytest.raises(Killed):
                file_retention(world).remove("agent", actor="retention")
    assert removed(world) == [1]
    assert [name for name in names(world) if ".gone-" in name] == [f".v000001.gone-{os.getpid()}"]
    file_retention(world).remove_all()
    assert removed(world) == [1, 2, 3]
    assert names(world) == [".past", "v000004", "v000005", "v000006"]


async def test_a_journal_that_is_not_the_stores_own_removes_nothing(world: World, tmp_path: Path) -> None:
    """It has versions with the same numbers, which are no longer useful."""
    file_retention(world, keep_live=9).remove("agent", actor="ana")
    other = world.settings.model_copy(update={"journal": config.Journal(url=f"sqlite:///{tmp_path / 'other.db'}")})
    journal = prepare(other)
    with journal.write() as session:
        for number in range(1, 8):
            lifecycle.announce(session, "agent", number, parent=0, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate")
    stranger = FileRetention(other.model_copy(update={"versions": config.Versions(keep_live=0)}), journal)
    with pytest.raises(AdapterError, match="is not the one of the adapter store"):
        stranger.remove("agent", actor="ana")
    with pytest.raises(AdapterError, match="is not the one of the adapter store"):
        stranger.remove_all()
    assert kept(world) == [1, 2, 3, 4, 5, 6]
    journal.close()


async def test_refused_versions_stay_for_some_days(world: World) -> None:
    world.announce(7, 6)
    world.engine.refuse("load")
    await world.swapper.run_once()
    assert 7 in file_retention(world, keep_live=9).remove("agent", actor="ana").plan.keep
    assert list(file_retention(world, keep_live=9, keep_refused_days=0).remove("agent", actor="ana").plan.remove) == [7]
    assert kept(world) == [1, 2, 3, 4, 5, 6]


async def test_it_looks_now_and_then_and_survives_a_journal_that_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = file_retention(world)
    calls: list[float] = []
    real = looked.remove_all

    def once_broken() -> object:
        calls.append(time.time())
        if len(calls) == 1:
            raise OSError("the disk is away")
        return real()

    monkeypatch.setattr(looked, "remove_all", once_broken)
    await asyncio.wait_for(looked.run_forever(lambda: len(calls) > 1, 1e-6), 30)
    assert removed(world) == [1, 2, 3]


async def test_on_postgresql_too(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = running(request.config)
    flags = {"state_dir": str(tmp_path / "state"), "journal.url": server.url(server.emptied()), "versions.keep_live": 0}
    settings = config.load(flags=flags)
    journal: Journal = prepare(settings)
    with journal.write() as session:
        for number in (1, 2, 3):
            lifecycle.announce(session, "agent", number, parent=0, step_id=None, digest="d")
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate")
            session.get_one(LoadJob, f"agent@v{number}").state = "done"
    assert list(FileRetention(settings, journal).remove("agent", actor="ana").plan.remove) == [1]
    with pytest.raises(Conflict, match="was removed"), journal.write() as session:
        lifecycle.promote(session, "agent", 1, expected=3, actor="ana")
    journal.close()
