"""The user's cache directory: files that can be made again, outside the repository and outside any state directory."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """`burnish` below XDG_CACHE_HOME, or below `~/.cache` if that is unset or relative (the XDG rule)."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "burnish"
