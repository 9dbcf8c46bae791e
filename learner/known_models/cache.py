"""The cache of known models: one directory each, complete or not there.

A model is made aside and published by one rename. A file beside the weights lists every file's digest. A lock keeps two
processes from fetching at once, and whoever holds it removes what a killed fetch has left.
"""

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from burnish.config.cache_dir import cache_dir
from burnish.errors import ModelError
from burnish.files import UNREADABLE, read_json, replace_text
from burnish.learner.known_models.conversion import CONVERSION, convert, require_packages
from burnish.learner.known_models.download import Watch, download, unpack
from burnish.learner.known_models.known import KnownModel, find

DIGESTS = "burnish-model.json"
Tell = Callable[[str], None]
"""Is told in one sentence what happens next."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A known model's directory, and whether it was made just now."""

    directory: Path
    is_new: bool


def place(name: str) -> Path:
    """Where the known model `name` is or will be. Raises ModelError for an unknown name."""
    return cache_dir() / "models" / find(name).folder


def directory(name: str) -> Path | None:
    """The known model's directory. None if it is not there, or if a file is missing or has another size.

    Raises ModelError for an unknown name.
    """
    folder = place(name)
    return None if _fault(find(name), folder, is_thorough=False) else folder


def ensure(name: str, tell: Tell) -> Path:
    """The known model's directory, fetched if it is not there. Raises ModelError as `fetch` does."""
    return fetch(name, tell).directory


def fetch(name: str, tell: Tell, *, wheel: Path | None = None, watch: Watch | None = None) -> Fetched:
    """Fetch the known model `name`, or make it from its downloaded `wheel`. A sound directory stays as it is.

    Raises ModelError for an unknown name, if packages are missing, if the wheel cannot be had or has another digest,
    if the conversion fails, and if the cache cannot be written. Nothing half-written stays.
    """
    model = find(name)
    folder = place(name)
    if not _fault(model, folder):
        return Fetched(folder, is_new=False)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.parent, tell):
            fault = _fault(model, folder)
            if not fault:
                return Fetched(folder, is_new=False)
            if folder.exists():
                tell(f"{folder} is not as it should be ({fault}): making it again")
            _make(model, folder, tell, wheel, watch)
    except OSError as error:
        raise ModelError(
            f"cannot keep {model.title} in {folder.parent}: {error.strerror or error}. Free some space, or set "
            "XDG_CACHE_HOME to a directory that can be written."
        ) from error
    return Fetched(folder, is_new=True)


def _make(model: KnownModel, folder: Path, tell: Tell, wheel: Path | None, watch: Watch | None) -> None:
    """Put the whole directory in its place by one rename."""
    require_packages()
    _require_space(model, folder.parent, 0 if wheel else model.wheel_bytes)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as name:
        aside = Path(name)
        if wheel is None:
            tell(f"downloading {model.requirement} ({model.wheel_bytes / 1e6:.0f} MB)")
            wheel = download(model, aside, watch)
        tell("checking digests")
        source, licence = unpack(model, wheel, aside)
        tell(f"converting to safetensors ({model.n_bytes / 1e6:.0f} MB)")
        ready = aside / "ready"
        convert(source, ready, splits_digits=model.splits_digits)
        (ready / "LICENSE").write_text(_licence_note(model) + licence, encoding="utf-8")
        _write_digests(model, ready)
        if folder.exists():
            folder.rename(aside / "damaged")
        ready.rename(folder)


def _require_space(model: KnownModel, folder: Path, n_download: int) -> None:
    needed = n_download + model.gguf_bytes + model.n_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"fetching {model.title} needs {needed / 1e6:.0f} MB in {folder}, and {free / 1e6:.0f} MB are free. Free "
            "some space, or set XDG_CACHE_HOME to a directory on another disk."
        )


def _licence_note(model: KnownModel) -> str:
    return (
        f"{model.title}, licence {model.licence}\n{model.credit}\n"
        f"Burnish took it from {model.package} {model.version} ({Path(model.gguf).name}) and converted it.\n"
        "The weights here are the dequantised ones, in float32. The licence's text follows.\n\n"
    )


def _write_digests(model: KnownModel, folder: Path) -> None:
    """List the directory's files. The list holds no time, because it counts for the base model's identity."""
    listed = {
        "name": model.name,
        "title": model.title,
        "licence": model.licence,
        "source": f"{model.package} {model.version}, {model.gguf}",
        "wheel_sha256": model.wheel_sha256,
        "gguf_sha256": model.gguf_sha256,
        "conversion": CONVERSION,
        "files": {
            file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())
        },
    }
    replace_text(folder / DIGESTS, json.dumps(listed, indent=2) + "\n")


def _fault(model: KnownModel, folder: Path, *, is_thorough: bool = True) -> str:
    """What is wrong with the directory, empty if nothing is. Compares sizes, and digests too if `is_thorough`."""
    try:
        listed = read_json(folder / DIGESTS)
        if listed is None:
            return f"{DIGESTS} is missing"
        if (listed["conversion"], listed["gguf_sha256"]) != (CONVERSION, model.gguf_sha256):
            return "another version of Burnish made it"
        for name, known in listed["files"].items():
            file = folder / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != known["bytes"]:
                return f"{name} has {file.stat().st_size} bytes, not {known['bytes']}"
            if is_thorough and _sha256(file) != known["sha256"]:
                return f"{name} was altered"
    except (OSError, *UNREADABLE) as error:
        return f"it cannot be read: {error}"
    return ""


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path, tell: Tell) -> Iterator[None]:
    """Keep other processes from fetching, and remove what a killed one has left."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process fetches a model now; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(".fetching-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
