"""Draws without state: the same name falls at the same place for whoever asks, whenever."""

import hashlib


def place(name: str) -> float:
    """Where `name` falls in [0, 1), uniformly over names (SHA-256)."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big") / 2**64
