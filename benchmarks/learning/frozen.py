"""The hash of a world: of every file that says who the users are, what they say and how replies are scored."""

import hashlib
from collections.abc import Sequence
from pathlib import Path


def digest(files: Sequence[Path]) -> str:
    """SHA-256 over the files' names and contents, in their order, as 64 hex digits. Raises OSError where one cannot be
    read."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()
