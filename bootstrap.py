#!/usr/bin/env python3
"""Makes `.venv` with everything Burnish needs, from a bare Python. Standard library only; safe to run again.

Installs the versions in `locks/`, then Burnish itself; uv checks the hashes. Picks the GPU build where an NVIDIA driver
answers, else the CPU build. The CPU build of torch comes from pip's find-links where they are set (in the environment
or in pip's configuration), else from PyTorch's own CPU index, else, with a warning, from the default index. `--check`
only says whether the environment is up to date.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent
VENV = HOME / ".venv"
STAMP = VENV / ".burnish-stamp"
BUILD = HOME / "locks" / "build.txt"
"""uv, and what builds Burnish itself."""
OLDEST, NEWEST = (3, 11), (3, 13)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", choices=["cpu", "gpu"], help="the build (default: what this machine has)")
    parser.add_argument("--check", action="store_true", help="exit with 1 where the environment is not up to date")
    arguments = parser.parse_args()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"burnish: needs Python 3.11 to 3.13, found {found}; name another with `make PYTHON=python3.12 …`",
            file=sys.stderr,
        )
        return 1
    build = arguments.build or ("gpu" if has_gpu() else "cpu")
    wanted = fingerprint(build)
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        return 0
    if arguments.check:
        return 1
    started = time.monotonic()
    say(f"making the {build.upper()} environment in .venv (Python {sys.version.split()[0]})")
    make_venv()
    install(build)
    STAMP.write_text(wanted, encoding="utf-8")
    say(f"the environment is ready after {time.monotonic() - started:.0f} s")
    return 0


def has_gpu() -> bool:
    """Whether an NVIDIA driver answers."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def locks(build: str) -> list[Path]:
    """What a build installs. `torch.txt` has no hashes, since the CPU build of torch comes from several places."""
    names = [f"{build}.txt", "torch.txt"] if build == "cpu" else [f"{build}.txt"]
    return [HOME / "locks" / name for name in names]


def fingerprint(build: str) -> str:
    """Changes when what should be installed does."""
    digest = hashlib.sha256()
    for file in (HOME / "pyproject.toml", HOME / "bootstrap.py", *locks(build)):
        digest.update(file.read_bytes())
    return f"{build} {sys.version_info[:2]} {digest.hexdigest()}"


def make_venv() -> None:
    python = VENV / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False)
        if made.returncode:
            raise SystemExit("burnish: python3 -m venv failed; on Debian or Ubuntu install the package python3-venv")
    uv = VENV / "bin" / "uv"
    if uv.exists():  # pip would call what is installed already in conflict with the build's setuptools
        pip = [str(uv), "pip", "install", "--python", str(python)]
    else:
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    run([*pip, "--quiet", "--requirement", str(BUILD)])


def install(build: str) -> None:
    """Everything, from the first source of a CPU torch that works."""
    environment = dict(os.environ)
    links = find_links()
    python = str(VENV / "bin" / "python")
    base = [str(VENV / "bin" / "uv"), "pip", "install", "--compile-bytecode", "--python", python]
    wanted = [argument for lock in locks(build) for argument in ("--requirement", str(lock))]
    attempts: list[tuple[str, list[str]]] = []
    if build == "gpu":
        attempts.append(("the default index", []))
    else:
        if links:
            environment["UV_FIND_LINKS"] = links
            attempts.append(("pip's find-links", []))
        attempts.append(("PyTorch's CPU index", ["--torch-backend", "cpu"]))
        attempts.append(("the default index (a CUDA build, several GB, that works on a CPU too)", []))
    for source, flags in attempts:
        say(f"installing; torch comes from {source}")
        if subprocess.run(base + wanted + flags, cwd=HOME, env=environment, check=False).returncode == 0:
            # all that it needs is there now
            run([*base, "--no-deps", "--build-constraints", str(BUILD), "--editable", "."])
            return
    raise SystemExit("burnish: the installation failed, see above. Check the network, then run it again.")


def find_links() -> str:
    """pip's find-links, from the environment or from its configuration, as uv wants them (comma-separated)."""
    given = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    if not given:
        asked = subprocess.run(
            [str(VENV / "bin" / "python"), "-m", "pip", "config", "get", "global.find-links"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        given = asked.stdout if asked.returncode == 0 else ""
    return ",".join(given.replace(",", " ").split())


def run(command: list[str]) -> None:
    if subprocess.run(command, cwd=HOME, check=False).returncode:
        raise SystemExit(f"burnish: this command failed: {' '.join(command)}")


def say(text: str) -> None:
    print(f"burnish: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
