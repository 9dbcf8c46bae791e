"""The base model's identity: a digest of the files that decide its log-probs. So an adapter never meets another
base."""

import hashlib
from functools import lru_cache
from pathlib import Path

_WHOLE = 64 * 2**20
_END = 2**20
_COUNT = frozenset({".json", ".safetensors", ".bin", ".jinja", ".model", ".txt"})


def revision(directory: Path) -> str:
    """sha256 over names, sizes and contents of the configuration, tokenizer and weights in `directory`, in hex.

    For a file above 64 MiB only the size and the first and last MiB count, which is fast and still distinguishes
    checkpoints. The digest is cached until a file's time or size changes.
    """
    files = [file for file in sorted(directory.iterdir()) if file.suffix in _COUNT and file.is_file()]
    return _digest(tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=8)
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for file, size, _ in files:
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= _WHOLE:
                digest.update(stream.read())
            else:
                digest.update(stream.read(_END))
                stream.seek(-_END, 2)
                digest.update(stream.read(_END))
    return digest.hexdigest()
