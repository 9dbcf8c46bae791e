"""Hashing of names to numbers: draws that need no state, because the same name always gives the same number."""

import hashlib


def place(name: str) -> float:
    """The number of `name` in [0, 1), uniform over names (SHA-256)."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big") / 2**64
