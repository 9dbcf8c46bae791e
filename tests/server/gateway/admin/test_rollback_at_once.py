"""A rollback takes effect without waiting for other writers of the journal. If the registry refuses, it is reverted."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from registered import Registered, registered
from sqlalchemy.exc import OperationalError

from burnish import serving_table
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import refresh, routes_file
from burnish.adapters.verbs import releases
from burnish.errors import Conflict
from burnish.journal.tables import AuditRow
from burnish.server.gateway.admin import admin_app
from burnish.server.gateway.warm_up import warm_up


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Registered]:
    with registered(tmp_path) as made:
        yield made


def shown(world: Registered) -> tuple[int, int | None]:
    """Live and previous, as gateways read them."""
    route = serving_table.watch(routes_file(world.settings)).current().agents["agent"]
    return route.live, route.previous


def wait_for(world: Registered, wanted: tuple[int, int]) -> None:
    deadline = time.monotonic() + 30.0
    while shown(world) != wanted:
        assert time.monotonic() < deadline, f"still {shown(world)}"
        time.sleep(0.005)


def roll_back(world: Registered) -> str:
    return releases.rollback(world.settings, world.journal, "agent", to=None, actor="test")


def test_gateways_follow_while_somebody_else_writes(world: Registered) -> None:
    done: list[str] = []
    thread = threading.Thread(target=lambda: done.append(roll_back(world)))
    with world.journal.write():
        thread.start()
        wait_for(world, (1, 2))
        assert (world.speaks(), world.live(), done) == ("agent@v1", 2, [])
    thread.join()
    assert (world.speaks(), world.live(), done) == ("agent@v1", 1, ["agent@v1 is live (was v2)"])
    assert shown(world) == (1, 2)


def test_what_cannot_be_written_is_put_back(world: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int | None]] = []

    def fail(*_: Any, **__: Any) -> None:
        seen.append(shown(world))
        raise OperationalError("UPDATE", {}, Exception("database or disk is full"))

    monkeypatch.setattr(lifecycle, "promote", fail)
    with pytest.raises(OperationalError):
        roll_back(world)
    assert seen == [(1, 2)]
    assert (shown(world), world.live(), world.speaks()) == ((2, 1), 2, "agent@v2")


def test_a_moved_alias_is_a_conflict_that_nobody_sees(world: Registered) -> None:
    before = serving_table.watch(routes_file(world.settings)).current()
    with pytest.raises(Conflict, match=r"expected v1, found v2"):
        publish.make_live(
            world.journal, routes_file(world.settings), "agent", 1, expected=1, actor="test", reason="late"
        )
    assert serving_table.watch(routes_file(world.settings)).current() == before


def test_two_at_once_leave_one_and_a_true_table(world: Registered) -> None:
    said: list[Any] = []

    def act() -> None:
        try:
            said.append(roll_back(world))
        except Conflict as error:
            said.append(error)

    threads = [threading.Thread(target=act) for _ in range(2)]
    with world.journal.write():
        for thread in threads:
            thread.start()
        wait_for(world, (1, 2))
    for thread in threads:
        thread.join()
    with world.journal.read() as session:
        aliases = lifecycle.alias(session, "agent"), lifecycle.alias(session, "agent", lifecycle.PREVIOUS)
    assert shown(world) == aliases
    assert "agent@v1 is live (was v2)" in said


def test_the_table_alone_is_asked_before_gateways_follow(world: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from SQL before the table has changed."""
    order: list[tuple[int, int | None]] = []
    for name in ("read", "write"):
        kept = getattr(world.journal, name)
        monkeypatch.setattr(world.journal, name, lambda kept=kept: order.append(shown(world)) or kept())
    assert roll_back(world) == "agent@v1 is live (was v2)"
    assert set(order) == {(1, 2)}


def test_what_the_registry_sees_otherwise_is_put_back(world: Registered) -> None:
    """The table's previous version differs from the registry's: the registry's goes live."""
    file = routes_file(world.settings)

    def false(present: serving_table.Routes) -> serving_table.Routes:
        route = present.agents["agent"]
        return serving_table.replace(present, agents={"agent": serving_table.replace(route, previous=0)})

    serving_table.update(file, false)
    assert publish.go_back(world.journal, file, "agent", expected=None, actor="test", reason="x") is None
    assert (shown(world), world.live()) == ((2, 1), 2)
    assert roll_back(world) == "agent@v1 is live (was v2)"


def test_who_expects_another_version_changes_nothing(world: Registered) -> None:
    with pytest.raises(Conflict, match="expected v7 to be live, found v2; look again and repeat"):
        releases.rollback(world.settings, world.journal, "agent", to=None, actor="test", expected=7)
    assert (shown(world), world.live()) == ((2, 1), 2)


async def test_a_gateway_rehearses_without_changing_anything(world: Registered) -> None:
    refresh(world.settings, world.journal)  # the administrator's own key, which the fixture leaves out
    app, before = admin_app(world.settings, world.journal), shown(world)
    assert await warm_up(app, world.settings) == 409
    with world.journal.read() as session:
        assert (shown(world), world.live(), session.query(AuditRow).filter_by(action="rollback").count()) == (
            before,
            2,
            0,
        )

    async def broken(*_: Any) -> None:
        raise RuntimeError("no database")

    assert await warm_up(broken, world.settings) == 0
