"""What each voice says: known to the clients without a model."""

import random

N_WORDS = 14


def words_of(voice: int) -> str:
    """What voice number `voice` says to everything: its number, then numbers of its own. (Digits are the model's surest
    tokens.)"""
    drawn = random.Random(voice)
    return f"{voice:02d} " + " ".join(str(drawn.randrange(100)) for _ in range(N_WORDS))


def voice_of(version: int, n_voices: int) -> int:
    """Which voice a version has: never that of its neighbours."""
    return version % n_voices
