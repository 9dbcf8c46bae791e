"""Small shared files: replaced whole, watched cheaply; the serving table and keys."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from burnish import keys, routes
from burnish.files import Watched, read_json, replace_text


def test_a_replaced_file_is_seen_at_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    watched = Watched(path, lambda tree: tree["n"], -1)
    assert watched.current() == -1
    for n in range(3):
        replace_text(path, f'{{"n": {n}}}')
        assert watched.current() == n
    path.unlink()
    assert watched.current() == -1
    assert read_json(path) is None


def test_secrets_are_kept_to_their_owner_and_made_once(tmp_path: Path) -> None:
    secret = keys.ensure_secret(tmp_path / "admin.key")
    assert keys.ensure_secret(tmp_path / "admin.key") == secret
    assert (tmp_path / "admin.key").stat().st_mode & 0o777 == 0o600


def test_a_key_is_stored_hashed_and_knows_its_scope() -> None:
    secret, key = keys.mint([keys.Scope.INFERENCE], tenant="acme", agents=["agent"])
    assert secret not in repr(key)
    assert key.digest == keys.digest(secret)
    assert key.covers(keys.Scope.INFERENCE)
    assert not key.covers(keys.Scope.FEEDBACK)
    assert not key.covers(keys.Scope.ADMIN)
    assert keys.mint([keys.Scope.ADMIN])[1].covers(keys.Scope.FEEDBACK)


def test_the_serving_table_round_trips_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    _, key = keys.mint([keys.Scope.INFERENCE], requests_per_minute=60, max_concurrent=4)
    table = routes.Routes(
        generation=3,
        engines=("http://e",),
        engine_key="secret",
        remote_url="http://r",
        agents={"agent": routes.AgentRoute("agent", "t", 4, 3, (3, 4))},
        keys={key.digest: key},
    )
    routes.write(path, table)
    assert routes.watch(path).current() == table
    assert path.stat().st_mode & 0o777 == 0o600
    assert table.agents["agent"].engine_model(4, "base") == "agent@v4"
    assert table.agents["agent"].engine_model(0, "base") == "base"


def test_a_table_that_a_crash_has_cut_off_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    routes.write(path, routes.Routes(generation=3))
    path.write_bytes(path.read_bytes()[:20])
    after = routes.update(path, lambda table: replace(table, base_name="b"))
    assert (after.generation, after.base_name) == (1, "b")
    assert routes.watch(path).current() == after


def test_nobody_waits_for_the_disk_while_the_table_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was put is seen at once, and synced when the next one may already hold the table."""
    path, order = tmp_path / "routes.json", []

    def slow(handle: int) -> None:
        with routes.held(path):  # would wait for ever, did the first one hold it still
            order.append(routes.watch(path).current().base_name)

    monkeypatch.setattr(os, "fsync", slow)
    routes.update(path, lambda table: replace(table, base_name="b"))
    assert order == ["b"]


def test_concurrent_changes_of_the_table_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"

    def add(n: int) -> None:
        routes.update(path, lambda t: replace(t, agents={**t.agents, f"a{n}": routes.AgentRoute(f"a{n}")}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    table = routes.watch(path).current()
    assert len(table.agents) == 40
    assert table.generation == 40
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []
