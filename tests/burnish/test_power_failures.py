"""Power failures: what `journal.fsync` flushes, and the model of a disk by which the chaos benchmark judges it."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from factories import interaction, user

from benchmarks.chaos import power
from benchmarks.chaos.disk import Disk, Event, Kind, events
from burnish.segments.file import SegmentWriter, copy_frame

ROOT = "/state"


def left(disk: Disk, folder: Path, share: float, seed: int = 1) -> dict[str, bytes]:
    """The files that a power failure leaves, by name."""
    disk.leave(folder, random.Random(seed), share)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def event(kind: Kind, name: str, data: bytes = b"", **more: object) -> Event:
    return Event(0.0, 0.0, kind, f"{ROOT}/{name}" if name else ROOT, data, **more)  # type: ignore[arg-type]


def test_only_what_was_flushed_is_certain(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "old").write_bytes(b"old")
    disk = Disk(ROOT, tmp_path / "before")
    disk.take(event(Kind.OPEN, "new"))
    disk.take(event(Kind.WRITE, "new", b"flushed "))
    disk.take(event(Kind.FLUSH, "new"))
    assert left(disk, tmp_path / "1", 0.0) == {"old": b"old"}  # the file has no name on the disk yet
    disk.take(event(Kind.FLUSH, ""))
    disk.take(event(Kind.WRITE, "new", b"not flushed"))
    disk.take(event(Kind.UNLINK, "old"))
    assert left(disk, tmp_path / "2", 0.0) == {"old": b"old", "new": b"flushed "}
    assert left(disk, tmp_path / "3", 1.0) == {"new": b"flushed not flushed"}


def test_half_of_a_write_may_be_there_and_sizes_may_not(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "file").write_bytes(b"a" * 4096)
    disk = Disk(ROOT, tmp_path / "before")
    disk.take(event(Kind.WRITE, "file", b"b" * 4096, place=0))
    disk.take(event(Kind.TRUNCATE, "file", size=100))
    found = {left(disk, tmp_path / str(seed), 0.5, seed)["file"] for seed in range(20)}
    assert any(set(content) == set(b"ab") for content in found)
    assert {len(content) for content in found} == {100, 4096}


def test_a_rename_is_there_once_its_folder_is_flushed(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "file").write_bytes(b"old")
    disk = Disk(ROOT, tmp_path / "before")
    for each in (event(Kind.OPEN, "file.tmp"), event(Kind.WRITE, "file.tmp", b"new"), event(Kind.FLUSH, "file.tmp")):
        disk.take(each)
    disk.take(event(Kind.RENAME, "file.tmp", target=f"{ROOT}/file"))
    assert left(disk, tmp_path / "1", 0.0) == {"file": b"old"}
    disk.take(event(Kind.FLUSH, ""))
    assert left(disk, tmp_path / "2", 0.0) == {"file": b"new"}


def test_calls_are_read_from_straces_log() -> None:
    log = r"""
7 10.000001 openat(AT_FDCWD<\x2f\x73>, "\x2f\x73\x2f\x61", O_RDWR|O_CREAT|O_APPEND, 0600) = 5<\x2f\x73\x2f\x61>
7 10.000002 writev(5<\x2f\x73\x2f\x61>, [{iov_base="\x68\x69", iov_len=2}, {iov_base="\x21", iov_len=1}], 2) = 3
7 10.000003 pwrite64(5<\x2f\x73\x2f\x61>, "\x68\x69", 2, 4096) = 2
7 10.000004 fdatasync(5<\x2f\x73\x2f\x61> <unfinished ...>
8 10.000005 write(6<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x31\x5d>, "\x68\x69", 2) = 2
8 10.000006 write(5<\x2f\x73\x2f\x61>, "\x68\x69", 2) = -1 ENOSPC (No space left on device)
7 10.000007 <... fdatasync resumed>)       = 0
7 10.000008 rename("\x2f\x73\x2f\x61", "\x2f\x73\x2f\x62") = 0
7 10.000009 unlink("\x2f\x73\x2f\x62") = 0
7 10.000010 ftruncate(5<\x2f\x73\x2f\x61>, 12) = 0
7 10.000011 +++ exited with 0 +++
"""
    found = list(events(log.splitlines()))
    assert [(each.kind, each.path, each.data, each.place) for each in found[:3]] == [
        (Kind.OPEN, "/s/a", b"", None),
        (Kind.WRITE, "/s/a", b"hi!", None),
        (Kind.WRITE, "/s/a", b"hi", 4096),
    ]
    assert [each.path for each in found[3:5]] == ["socket:[1]", "/s/a"]
    assert (found[4].kind, found[4].began, found[4].at) == (Kind.FLUSH, 10.000004, 10.000007)
    assert [(each.kind, each.target, each.size) for each in found[5:]] == [
        (Kind.RENAME, "/s/b", 0),
        (Kind.UNLINK, "", 0),
        (Kind.TRUNCATE, "", 12),
    ]


@pytest.mark.parametrize("fsync", [True, False])
def test_a_new_segments_name_is_flushed_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    flushed: list[int] = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino) or flush(handle))
    folder = tmp_path / "segments"
    writer = SegmentWriter(folder, fsync=fsync, max_bytes=1)
    for name in ("a", "b"):
        writer.append(interaction([user(name)], interaction_id=name))
    writer.close()
    assert flushed == ([tmp_path.stat().st_ino, *[folder.stat().st_ino] * 2] if fsync else [])


def test_a_record_that_is_set_aside_has_its_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path)
    writer.append(interaction([user("a")]))
    writer.close()
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    copy_frame(next(tmp_path.glob("*.seg")), 0, tmp_path / "aside" / "x.seg")
    assert flushed[-1] == (tmp_path / "aside").stat().st_ino


def can_trace() -> bool:
    """True if strace is there and the system lets it trace."""
    return shutil.which("strace") is not None and not subprocess.run(["strace", "-o", os.devnull, "true"]).returncode


@pytest.mark.skipif(not can_trace(), reason="needs strace")
def test_what_clients_saw_is_there_after_power_failures(tmp_path: Path) -> None:
    found = power.measure(tmp_path, 1, lambda line: None, n_turns=40, n_failures=30)
    assert (found["power_failures"], found["power_turns"]) == (30, 40)
    assert (found["power_lost"], found["power_damaged"]) == (0, 0)
