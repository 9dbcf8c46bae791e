"""Archives of imports: every tar that tools make is read, no archive costs more memory than a few blocks."""

import io
import random
import tarfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gateways import error_of
from registered import registered

from burnish.errors import RequestError
from burnish.server.gateway.admin import imports
from burnish.server.gateway.admin.archive import MAX_JSON, MAX_MEMBERS, unpack

CONFIG = "adapter_config.json"


def tar(*members: tuple[str, bytes], form: int = tarfile.GNU_FORMAT, **changes: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for field, value in changes.items():
                setattr(entry, field, value)
            made.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(folder: Path, archive: bytes) -> dict[str, bytes]:
    (folder / "archive.tar").write_bytes(archive)
    unpack(folder / "archive.tar", folder / "out")
    return {file.name: file.read_bytes() for file in (folder / "out").iterdir()}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folder", ["", "a/", "/abs/", "../../up/", "deep/" * 15])
def test_the_archives_that_tools_make_are_read(tmp_path: Path, form: int, folder: str) -> None:
    mtime = 1700000000 if form == tarfile.USTAR_FORMAT else 1700000000.25  # Python's own archives have a pax header
    found = unpacked(tmp_path, tar((f"{folder}{CONFIG}", b"{}"), (f"{folder}notes.txt", b"n"), form=form, mtime=mtime))
    assert found == {CONFIG: b"{}", "notes.txt": b""}
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("archive.tar", "out")] == []


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_read(tmp_path: Path, form: int) -> None:
    assert unpacked(tmp_path, tar((f"{'long' * 60}/{CONFIG}", b"{}"), form=form)) == {CONFIG: b"{}"}


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (header(tarfile.XHDTYPE, 64 * 2**20) + b"9 a=b" * (13 * 2**20) + bytes(2**20), "extended header"),
        (header(tarfile.XGLTYPE, 64 * 2**20) + bytes(64 * 2**20), "extended header"),
        (header(tarfile.GNUTYPE_LONGNAME, 64 * 2**20) + bytes(64 * 2**20), "extended header"),
        (header(tarfile.GNUTYPE_SPARSE, 0), "no plain file"),
        (header(tarfile.SYMTYPE, 0), "no plain file"),
        (header(tarfile.LNKTYPE, 0), "no plain file"),
        (header(tarfile.CHRTYPE, 0), "no plain file"),
        (header(tarfile.FIFOTYPE, 0), "no plain file"),
        (header(tarfile.REGTYPE, 2**40, CONFIG), "ends within a file"),
        (header(tarfile.XHDTYPE, 18) + b"18 size=999999999\n".ljust(512, b"\0"), "larger than its header"),
        (header(tarfile.XHDTYPE, 22) + b"22 GNU.sparse.major=1\n".ljust(512, b"\0"), "larger than its header"),
        (header(tarfile.XHDTYPE, 9) + b"no record".ljust(512, b"\0"), "invalid literal"),
        (tar(*((f"f{n}", b"") for n in range(MAX_MEMBERS + 2))), "more than 256 files"),
        (header(tarfile.DIRTYPE, 0) * 1000, "more than 256 files"),
        (tar((CONFIG, b"{}"), (f"b/{CONFIG}", b"{}")), "twice"),
        (tar((CONFIG, bytes(MAX_JSON + 1))), "has more than"),
    ],
)
def test_an_archive_that_costs_too_much_is_refused_for_little(tmp_path: Path, archive: bytes, said: str) -> None:
    (tmp_path / "archive.tar").write_bytes(archive)
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match=said):
            unpack(tmp_path / "archive.tar", tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_damaged_archive_is_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    whole = tar((f"{'long' * 60}/{CONFIG}", b"{}" * 100), ("b", b"x" * 1000), form=tarfile.PAX_FORMAT, mtime=1.5)
    draw = random.Random(7)
    for number in range(300):
        body = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        (folder := tmp_path / str(number)).mkdir()
        try:
            unpacked(folder, bytes(body[: draw.randint(1, len(body))]))
        except RequestError:
            continue


def test_one_import_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()

    def wait(archive: Path, folder: Path) -> None:
        has_begun.set()
        assert may_go_on.wait(30)
        raise RequestError("looked at")

    monkeypatch.setattr(imports, "unpack", wait)
    path, answers = "/agents/agent/versions/import", []
    with registered(tmp_path) as world:
        send: Callable[[], None] = lambda: answers.append(world.post(path, content=b"x"))  # noqa: E731
        first = threading.Thread(target=send)
        first.start()
        assert has_begun.wait(30)
        assert error_of(world.post(path, content=b"x"), 409)["code"] == "import_running"
        may_go_on.set()
        first.join()
        assert "looked at" in error_of(answers[0], 400)["message"]
        assert "looked at" in error_of(world.post(path, content=b"x"), 400)["message"]
