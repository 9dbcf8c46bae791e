"""Which sessions are held out: they are never trained on, so that a candidate can be tested on live turns."""

from burnish.hashing import place

HELD_OUT = "held out for the gate"
"""The skip reason of their turns."""


def is_held_out(session_id: str, share: float) -> bool:
    """True for about `share` of all sessions, and always for the same ones. A session is held out whole or not at
    all."""
    return place(f"held out|{session_id}") < share
