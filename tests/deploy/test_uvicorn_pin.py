"""The gateway subclasses classes that uvicorn does not promise to keep, so the version is pinned exactly."""

import tomllib
from importlib.metadata import version
from itertools import chain
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]


def test_uvicorn_is_pinned_to_the_version_that_is_tested() -> None:
    needed = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*needed["dependencies"], *chain(*needed.get("optional-dependencies", {}).values())]
    assert [each for each in listed if each.startswith("uvicorn")] == [f"uvicorn=={version('uvicorn')}"]
