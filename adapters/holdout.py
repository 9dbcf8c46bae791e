"""Which sessions are never trained on, so that a candidate can be asked about live turns that it has not seen."""

import hashlib

HELD_OUT = "held out for the gate"
"""The fate of their turns."""


def is_held_out(session_id: str, share: float) -> bool:
    """True for about `share` of all sessions: the same ones for whoever asks, whenever. A session is held out whole or not at all."""
    drawn = int.from_bytes(hashlib.sha256(f"held out|{session_id}".encode()).digest()[:8], "big")
    return drawn < share * 2**64
