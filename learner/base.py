"""The base model's place and identity: a digest of what decides its log-probs, so that an adapter is never put on another base."""

import hashlib
from pathlib import Path

from huggingface_hub import snapshot_download

from burnish.errors import LearnerError

_WHOLE = 64 * 2**20
_END = 2**20


def locate(model: Path | str) -> Path:
    """The directory of `model`: itself, or the local snapshot of a hub name (fetched unless HF_HUB_OFFLINE is set)."""
    if Path(model).is_dir():
        return Path(model)
    try:
        return Path(snapshot_download(str(model)))
    except (OSError, ValueError) as error:  # not found, offline, no such name
        raise LearnerError(f"cannot load a model from {model}: no such directory, and not on the hub ({error})") from error


def revision(directory: Path) -> str:
    """sha256 over names, sizes and contents of the configuration, tokenizer and weights in `directory`, in hex.

    Of a file above 64 MiB only the size and the first and last MiB count: enough to tell checkpoints apart in no time.
    """
    digest = hashlib.sha256()
    for file in sorted(directory.iterdir()):
        if file.suffix not in (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt") or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= _WHOLE:
                digest.update(stream.read())
            else:
                digest.update(stream.read(_END))
                stream.seek(-_END, 2)
                digest.update(stream.read(_END))
    return digest.hexdigest()
