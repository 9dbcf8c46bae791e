"""Archives of imports: every tar that tools make is read, no archive costs more memory than a few blocks."""

import io
import random
import resource
import struct
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import error_of
from registered import registered

from burnish.adapters.files import foreign
from burnish.adapters.registry import lifecycle
from burnish.config import Settings
from burnish.errors import AdapterError, RequestError
from burnish.server.gateway.admin import imports
from burnish.server.gateway.admin.archive import MAX_JSON, MAX_MEMBERS, unpack

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (CONFIG, b"[" * 2**20),
        (CONFIG, b'{"a":' + b"[" * 900 + b"[]," * 300_000),
        (WEIGHTS, struct.pack("<Q", 16 * 2**20) + b"[[]," * (4 * 2**20)),
        (WEIGHTS, struct.pack("<Q", 16 * 2**20) + (b'{"a":{}},' * (2 * 2**20))[: 16 * 2**20]),
    ],
    ids=["deep", "wide", "a header of lists", "a header of objects"],
)
def test_what_an_adapter_says_is_parsed_in_a_bounded_process(
    tmp_path: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = b'{"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4}'
    files = {CONFIG: config, WEIGHTS: b"", name: content}
    for file, text in files.items():
        (tmp_path / file).write_bytes(text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AdapterError) as refused:
        imports._check(Settings(state_dir=tmp_path), tmp_path, False)
    assert str(tmp_path) not in str(refused.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    monkeypatch.setattr(imports, "CHECK_SECONDS", 0.01)
    with pytest.raises(AdapterError, match="too much memory or time"):
        imports._check(Settings(state_dir=tmp_path), tmp_path, False)


def test_no_path_that_an_adapter_names_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would tell which directories exist, and whose contents are the base's."""
    (model := tmp_path / "model").mkdir()
    (named := tmp_path / "secret").mkdir()
    looked: list[Path] = []
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda self: looked.append(self) or real(self))
    monkeypatch.setattr(foreign, "revision", lambda directory: looked.append(directory) or "same")
    for base in (str(named), str(tmp_path / "nothing")):
        with pytest.raises(AdapterError, match="made for base"):
            foreign._check_base(tmp_path, {"base_model_name_or_path": base}, {}, str(model), False)
    foreign._check_base(tmp_path, {"base_model_name_or_path": f"{tmp_path}/x/../model"}, {}, str(model), False)
    assert set(looked) == {model}


def test_a_slow_sender_keeps_no_other_tenant_from_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"x"
        has_begun.set()
        may_go_on.wait(30)

    def refuse(archive: Path, folder: Path) -> None:
        raise RequestError("looked at")

    monkeypatch.setattr(imports, "unpack", refuse)
    path = "/admin/agents/{}/versions/import"
    with registered(tmp_path) as world, world.running.client("operator") as client:
        with world.journal.write() as session:
            lifecycle.ensure_agent(session, "theirs", "other")
        first = threading.Thread(target=lambda: client.post(path.format("agent"), content=slowly()))
        first.start()
        assert has_begun.wait(30)
        with world.running.client("operator") as same, world.running.client("foreigner") as other:
            assert error_of(same.post(path.format("agent"), content=b"x"), 409)["code"] == "import_running"
            assert "looked at" in error_of(other.post(path.format("theirs"), content=b"x"), 400)["message"]
        may_go_on.set()
        first.join()


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
