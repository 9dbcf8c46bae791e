"""locks/: each requirement has one version and its hashes, without a host. Only torch has no hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from bootstrap import locks

HOME = Path(__file__).resolve().parents[2]
FOLDER = HOME / "locks"
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")


def entries(name: str) -> list[tuple[Requirement, int]]:
    """The requirements of a lock and their numbers of hashes."""
    text = (FOLDER / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(Requirement(line.partition(" --hash=")[0]), line.count("--hash=sha256:")) for line in lines]


def holds(marker: Marker | None, python: str) -> bool:
    """Whether the marker holds on Linux with this Python."""
    there = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    return marker is None or marker.evaluate(there)


def pins(build: str, python: str) -> dict[str, str]:
    """The versions that a build installs on Linux. Raises AssertionError if a package has two."""
    found: dict[str, str] = {}
    for path in locks(build):
        for requirement, _ in entries(path.name):
            if requirement.specifier and holds(requirement.marker, python):
                (one,) = requirement.specifier
                assert one.operator == "==", requirement
                assert found.setdefault(requirement.name, one.version) == one.version, requirement
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("build", ["cpu", "gpu"])
def test_each_requirement_has_a_version_that_fits(build: str, python: str) -> None:
    pinned = pins(build, python)
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras[build], *extras["dev"]]
    for requirement in map(Requirement, wanted):
        if holds(requirement.marker, python):
            name = requirement.name.lower().replace("_", "-")
            assert name in pinned, f"{name} is in no lock of {build}: run `make lock`"
            assert requirement.specifier.contains(pinned[name]), f"{name}=={pinned[name]} does not fit: run `make lock`"


@pytest.mark.parametrize("name", ["cpu.txt", "gpu.txt", "build.txt"])
def test_each_version_has_hashes_and_no_host(name: str) -> None:
    assert [str(requirement) for requirement, n_hashes in entries(name) if not n_hashes] == []
    assert re.findall(r"://|--\w*index|--find-links|\+cpu", (FOLDER / name).read_text()) == []


def test_only_torch_of_the_cpu_build_has_no_hash() -> None:
    hashed = {requirement.name for requirement, _ in entries("cpu.txt")}

    assert {requirement.name for requirement, _ in entries("torch.txt")} - hashed == {"torch"}
    assert pins("cpu", "3.11")["torch"] == pins("gpu", "3.11")["torch"]


@pytest.mark.parametrize("build", ["cpu", "gpu"])
def test_cuda_builds_that_break_a_cpu_torch_are_in_no_lock(build: str) -> None:
    assert not {"torchvision", "torchaudio", "torchcodec"} & pins(build, "3.11").keys()
    assert any(name.startswith("nvidia-cu") for name in pins(build, "3.11")) == (build == "gpu")
