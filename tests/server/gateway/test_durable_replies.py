"""`journal.fsync`: a reply waits for the disk, and nothing else does."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from burnish.config import Journal
from burnish.segments.file import SegmentWriter, flush, read
from burnish.testing.stub_engine import StubEngine
from tests.factories import interaction, user
from tests.server.gateway.gateways import serve


@pytest.mark.parametrize("is_stream", [False, True])
def test_while_the_disk_is_slow_only_the_replies_that_need_it_wait(
    tmp_path: Path, engine: StubEngine, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    asked, is_done, n_flushes = threading.Event(), threading.Event(), 0

    def slow(handle: int) -> None:
        nonlocal n_flushes
        n_flushes += 1
        asked.set()
        assert is_done.wait(20)

    monkeypatch.setattr(os, "fdatasync", slow)
    with serve(tmp_path, engine, journal=Journal(fsync=True)) as gateway, ThreadPoolExecutor(8) as pool:
        first = pool.submit(gateway.chat, stream=is_stream)
        assert asked.wait(10)
        others = [pool.submit(gateway.chat, stream=is_stream) for _ in range(5)]
        with gateway.client() as client:
            assert client.get("/healthz", timeout=5).status_code == 200  # the event loop goes on
        while len(gateway.interactions) < 6:
            assert not any(each.done() for each in (first, *others))
        is_done.set()
        assert [each.result().status_code for each in (first, *others)] == [200] * 6
        assert n_flushes <= 4  # one is for all that wait


def test_a_file_that_was_left_is_flushed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    writer = SegmentWriter(tmp_path, fsync=True, max_bytes=1)
    for name in ("a", "b"):
        assert writer.append(interaction([user(name)], interaction_id=name))
    paths = sorted(tmp_path.glob("*.seg"))
    assert len(paths) == 2 and flushed == []
    flush(writer.unflushed())
    assert sorted(flushed) == sorted(path.stat().st_ino for path in paths)
    flush(writer.unflushed())
    assert len(flushed) == 2
    assert writer.append(interaction([user("c")], interaction_id="c"))
    writer.close()
    assert len(flushed) == 3
    assert [record.interaction_id for path in sorted(tmp_path.glob("*.seg")) for record, _ in read(path)] == [*"abc"]  # type: ignore[union-attr]


def test_a_disk_that_fails_to_flush_holds_no_reply_back(
    tmp_path: Path, engine: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(handle: int) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    with serve(tmp_path, engine, journal=Journal(fsync=True)) as gateway:
        assert gateway.chat().status_code == 200
        assert gateway.chat().status_code == 200
