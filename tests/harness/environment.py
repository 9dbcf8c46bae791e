"""An environment for each harness: created on demand, kept under .work/harness/, outside Burnish's own.

They do not fit into one environment, and none of them belongs into Burnish's. An environment is created again if its
pins in versions.toml change.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap import find_links

HOME = Path(__file__).resolve().parents[2]
KEPT = HOME / ".work" / "harness"
PINS = tomllib.loads((Path(__file__).parent / "versions.toml").read_text(encoding="utf-8"))
INSTALL_SECONDS = 1200


@dataclass(frozen=True)
class Environment:
    """The installation of one harness."""

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    def program(self, name: str) -> Path:
        """A command of the harness."""
        is_npm = "npm" in PINS[self.name]
        return self.folder / ("node_modules/.bin" if is_npm else ".venv/bin") / name


def version_of(name: str) -> str:
    """The harness and its version in the usual form: `openai 3.52.0`, `openai 7.55.0 (npm)`."""
    package = packages_of(name)[0].replace("==", "@")
    product, version = package.rsplit("@", 1)
    return f"{product.partition('[')[0]} {version}" + (" (npm)" if "npm" in PINS[name] else "")


def packages_of(name: str) -> list[str]:
    pins = PINS[name]
    return list(pins["python"] if "python" in pins else pins["npm"])


def environment(name: str) -> Environment:
    """The harness's environment, installed if necessary. Fails the test with the installer's output if that fails."""
    folder = KEPT / name
    stamp = folder / "stamp"
    wanted = " ".join([f"{sys.version_info[0]}.{sys.version_info[1]}", *packages_of(name)])
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in _commands(name, folder):
            _install(name, command)
        stamp.write_text(wanted, encoding="utf-8")
    return Environment(name, folder)


def _commands(name: str, folder: Path) -> list[list[str]]:
    packages = packages_of(name)
    if "npm" in PINS[name]:
        return [
            ["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix", str(folder), *packages]
        ]
    uv = [sys.executable, "-m", "uv"]
    python = str(folder / ".venv" / "bin" / "python")
    return [
        [*uv, "venv", "--quiet", "--python", sys.executable, str(folder / ".venv")],
        [*uv, "pip", "install", "--quiet", "--python", python, *packages],
    ]


def _install(name: str, command: list[str]) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    if links := find_links():
        environ["UV_FIND_LINKS"] = links
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        pytest.fail(f"{name} cannot be installed: {error}", pytrace=False)
    if done.returncode:
        pytest.fail(f"{name} cannot be installed: {' '.join(command)}\n{done.stderr[-2000:]}", pytrace=False)
