"""The base model's directory. Its identity is in adapters/base_model.py."""

from pathlib import Path

from huggingface_hub import snapshot_download

from burnish.adapters.base_model import revision
from burnish.errors import LearnerError

__all__ = ["locate", "revision"]


def locate(model: Path | str) -> Path:
    """The directory of `model`: itself, or the local snapshot of a hub name (fetched unless HF_HUB_OFFLINE is set)."""
    if Path(model).is_dir():
        return Path(model)
    try:
        return Path(snapshot_download(str(model)))
    except (OSError, ValueError) as error:  # not found, offline, no such name
        raise LearnerError(
            f"cannot load a model from {model}: no such directory, and not on the hub ({error})"
        ) from error
