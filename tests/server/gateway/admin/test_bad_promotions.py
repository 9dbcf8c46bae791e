"""Promotions that must fail: a clear error, an unchanged alias, and undisturbed serving."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateways import error_of
from registered import Registered, add_version, registered

from burnish.adapters.files.retention import FileRetention
from burnish.journal.tables import LoadJob

Change = Callable[[Registered], None]
PROMOTE = "/agents/agent/promote"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Registered]:
    with registered(tmp_path) as made:
        yield made


def nothing(world: Registered) -> None: ...


def flip(number: int, name: str = "adapter_model.safetensors") -> Change:
    def change(world: Registered) -> None:
        file = world.store.path("agent", number) / name
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)

    return change


def rewrite(world: Registered) -> None:
    """Other weights with a matching manifest: only the registry can find the difference."""
    directory = world.store.path("agent", 3)
    flip(3)(world)
    manifest = json.loads((directory / "manifest.json").read_text())
    from burnish.adapters.files.store import digest_of

    manifest["files"]["adapter_model.safetensors"] = digest_of(directory / "adapter_model.safetensors")
    (directory / "manifest.json").write_text(json.dumps(manifest))


def delete(world: Registered) -> None:
    shutil.rmtree(world.store.path("agent", 3))


def foreign(world: Registered) -> None:
    add_version(world.journal, world.store, 5, "retired", base={"revision": "f" * 64})


def candidate(world: Registered) -> None:
    add_version(world.journal, world.store, 5)


def tombstone(world: Registered) -> None:
    from burnish.config import Versions

    settings = world.settings.model_copy(update={"versions": Versions(keep_live=0)})
    assert 3 in FileRetention(settings, world.journal).remove("agent", actor="retention").plan.remove


BAD = [
    (nothing, 9, 404, "no version agent@v9"),
    (nothing, 4, 409, "agent@v4 was refused: unlearned 9 of 64"),
    (flip(3), 3, 409, "agent@v3 cannot be served: .*was altered"),
    (flip(1), 1, 409, "agent@v1 cannot be served: .*was altered"),  # loaded, but the engine may have to read it again
    (flip(3, "adapter_config.json"), 3, 409, "adapter_config.json"),
    (rewrite, 3, 409, "the registry knows them as"),
    (delete, 3, 409, "agent@v3 cannot be served: .*does not exist"),
    (foreign, 5, 409, "made on base ffffffffffff…, but engine.model is another"),
    (candidate, 5, 409, "agent@v5 is still on trial"),
    (tombstone, 3, 409, "agent@v3 was removed .* only its record is left"),
]


@pytest.mark.parametrize(("change", "number", "status", "said"), BAD)
def test_the_alias_stays_and_serving_goes_on(
    world: Registered, change: Change, number: int, status: int, said: str
) -> None:
    import re

    change(world)
    before = world.audit()
    assert re.search(said, error_of(world.post(PROMOTE, {"version": number}), status)["message"])
    if number != 1:  # going back to a loaded version must not wait for a disk
        assert re.search(said, error_of(world.post("/agents/agent/rollback", {"to": number}), status)["message"])
    assert (world.live(), world.speaks(), world.audit()) == (2, "agent@v2", before)
    with world.journal.read() as session:
        assert session.get(LoadJob, f"agent@v{number}#promote") is None
    # and a sound version is still promoted
    assert world.post("/agents/agent/rollback").json()["status"] == "agent@v1 is live (was v2)"
    assert world.speaks() == "agent@v1"


def test_of_two_promotions_at_once_one_wins(world: Registered) -> None:
    gate = threading.Barrier(2)

    def race(number: int) -> int:
        gate.wait(10)
        return int(world.post(PROMOTE, {"version": number, "expected": 2}).status_code)

    with ThreadPoolExecutor(2) as pool:
        statuses = list(pool.map(race, (0, 1)))
    assert sorted(statuses) == [200, 409]
    assert world.live() == statuses.index(200)
    assert world.speaks() == f"agent@v{world.live()}"


def test_while_one_version_is_being_loaded_another_waits(world: Registered) -> None:
    add_version(world.journal, world.store, 5, "retired")
    first = world.post(PROMOTE, {"version": 3})
    assert first.json() == {
        "status": "agent@v3 is being loaded; it goes live when every engine has it",
        "agent": "agent",
        "live": 2,
    }
    assert world.post(PROMOTE, {"version": 3}).status_code == 200  # the same promotion again is no conflict
    assert "agent@v3 is being loaded to go live" in error_of(world.post(PROMOTE, {"version": 5}), 409)["message"]
    assert world.speaks() == "agent@v2"


def test_compare_and_set_and_repeating(world: Registered) -> None:
    assert (
        "expected v1 to be live, found v2"
        in error_of(world.post(PROMOTE, {"version": 0, "expected": 1}), 409)["message"]
    )
    assert "expected v1" in error_of(world.post("/agents/agent/rollback", {"expected": 1}), 409)["message"]
    before = world.audit()
    assert world.post(PROMOTE, {"version": 2, "expected": 2}).json()["status"] == "agent@v2 is live already"
    assert world.audit() == before
