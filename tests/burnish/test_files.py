"""Small shared files: replaced whole and watched cheaply; the serving table and keys."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from burnish import keys, serving_table
from burnish.errors import TableError
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
    table = serving_table.Routes(
        generation=3,
        engines=("http://e",),
        engine_key="secret",
        remote_url="http://r",
        agents={"agent": serving_table.AgentRoute("agent", "t", 4, 3, (3, 4))},
        keys={key.digest: key},
    )
    serving_table.write(path, table)
    assert serving_table.watch(path).current() == table
    assert path.stat().st_mode & 0o777 == 0o600
    assert table.agents["agent"].engine_model(4, "base") == "agent@v4"
    assert table.agents["agent"].engine_model(0, "base") == "base"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "routes.json"
    serving_table.write(path, serving_table.Routes())
    return path


FOREIGN = ["", "{", "null", "[]", "{}", '{"generation": 3}', None]


@pytest.mark.parametrize("text", FOREIGN)
def test_a_table_that_cannot_be_read_is_left_as_it_is(table: Path, text: str | None) -> None:
    if text is None:
        table.unlink()
    else:
        table.write_text(text)
    with pytest.raises(
        TableError, match=r"routes\.json: expected a serving table, got .*`burnish up` makes the table anew"
    ):
        serving_table.update(table, lambda present: replace(present, base_name="b"))
    assert (table.read_text() if table.exists() else None) == text
    after = serving_table.update(table, lambda present: replace(present, base_name="b"), is_made_anew=True)
    assert serving_table.watch(table).current() == after == serving_table.Routes(generation=1, base_name="b")


@pytest.mark.parametrize("text", [text for text in FOREIGN if text is not None])
def test_who_had_a_table_keeps_it_while_the_file_cannot_be_read(
    table: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, key = keys.mint([keys.Scope.INFERENCE])
    good = serving_table.Routes(generation=3, engines=("http://e",), keys={key.digest: key})
    serving_table.write(table, good)
    watched = serving_table.watch(table)
    assert watched.current() == good
    replace_text(table, text)
    assert [watched.current(), watched.current()] == [good, good]
    assert capsys.readouterr().out.count("what it said before stands") == 1
    serving_table.write(table, replace(good, generation=4))
    assert watched.current().generation == 4


ROOM = 16 * 1024
LIMITED = """
import resource, sys
from pathlib import Path
from burnish.files import replace_text
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    replace_text(Path(sys.argv[1]), "new " * int(sys.argv[2]))
except OSError as error:
    print(type(error).__name__)
"""


def test_a_text_that_fits_in_part_leaves_the_old_one(tmp_path: Path) -> None:
    """At the limit on a file's size the system writes what fits, as on a full disk, and refuses the next byte."""
    path = tmp_path / "a.json"
    replace_text(path, "old")
    told = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(ROOM)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "OSError"
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.json"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_on_a_full_disk_the_table_stands_and_the_writer_is_told(small_disk: Path) -> None:
    path = small_disk / "routes.json"
    _, key = keys.mint([keys.Scope.INFERENCE])
    good = serving_table.Routes(engines=("http://e",), keys={key.digest: key})
    serving_table.write(path, good)
    before = path.read_bytes()
    (small_disk / "filler").write_bytes(bytes(64 * 1024 - 3 * 4096))  # two pages are left, or one
    many = {f"a{i}": serving_table.AgentRoute(f"a{i}") for i in range(200)}
    for _ in range(2):  # the next writer also finds a table with keys and engines
        with pytest.raises(OSError) as told:
            serving_table.update(path, lambda present: replace(present, agents=many))
        assert told.value.errno == errno.ENOSPC
        assert path.read_bytes() == before
        assert [name for name in os.listdir(small_disk) if name.endswith(".tmp")] == []
    (small_disk / "filler").unlink()
    after = serving_table.update(path, lambda present: replace(present, base_name="b"))
    assert (after.engines, list(after.keys)) == (good.engines, [key.digest])


def test_nobody_waits_for_the_disk_while_the_table_is_held(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new value is readable at once. It is synced when the next writer may already hold the table."""
    path, order = table, []

    def slow(handle: int) -> None:
        with serving_table.held(path):  # would wait for ever if the first writer still held it
            order.append(serving_table.watch(path).current().base_name)

    monkeypatch.setattr(os, "fsync", slow)
    serving_table.update(path, lambda table: replace(table, base_name="b"))
    assert order == ["b"]


def test_concurrent_changes_of_the_table_are_all_kept(table: Path) -> None:
    path = table

    def add(n: int) -> None:
        serving_table.update(
            path, lambda t: replace(t, agents={**t.agents, f"a{n}": serving_table.AgentRoute(f"a{n}")})
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    after = serving_table.watch(path).current()
    assert len(after.agents) == 40
    assert after.generation == 40
    assert [name for name in os.listdir(path.parent) if name.endswith(".tmp")] == []
