"""A rollback waits for no other writer of the journal before it is seen; what the registry refuses is put back."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from registered import Registered, registered
from sqlalchemy.exc import OperationalError

from adapters import registry
from burnish import routes
from burnish.errors import Conflict
from server import release, table
from server.prepare import routes_file


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Registered]:
    with registered(tmp_path) as made:
        yield made


def shown(world: Registered) -> tuple[int, int | None]:
    """Live and previous, as gateways see them."""
    route = routes.watch(routes_file(world.settings)).current().agents["agent"]
    return route.live, route.previous


def wait_for(world: Registered, wanted: tuple[int, int]) -> None:
    deadline = time.monotonic() + 30.0
    while shown(world) != wanted:
        assert time.monotonic() < deadline, f"still {shown(world)}"
        time.sleep(0.005)


def roll_back(world: Registered) -> str:
    return release.rollback(world.settings, world.journal, "agent", to=None, actor="test")


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

    monkeypatch.setattr(registry, "promote", fail)
    with pytest.raises(OperationalError):
        roll_back(world)
    assert seen == [(1, 2)]
    assert (shown(world), world.live(), world.speaks()) == ((2, 1), 2, "agent@v2")


def test_a_moved_alias_is_a_conflict_that_nobody_sees(world: Registered) -> None:
    before = routes.watch(routes_file(world.settings)).current()
    with pytest.raises(Conflict, match=r"expected v1, found v2"):
        table.make_live(world.journal, routes_file(world.settings), "agent", 1, expected=1, actor="test", reason="late")
    assert routes.watch(routes_file(world.settings)).current() == before


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
        aliases = registry.alias(session, "agent"), registry.alias(session, "agent", registry.PREVIOUS)
    assert shown(world) == aliases
    assert "agent@v1 is live (was v2)" in said
