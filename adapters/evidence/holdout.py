"""Which sessions are never trained on, so that a candidate can be asked about live turns that it has not seen."""

from burnish.hashing import place

HELD_OUT = "held out for the gate"
"""The fate of their turns."""


def is_held_out(session_id: str, share: float) -> bool:
    """True for about `share` of all sessions: the same ones for whoever asks, whenever. A session is held out whole or
    not at all."""
    return place(f"held out|{session_id}") < share
