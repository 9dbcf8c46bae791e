"""The text of each voice, which the clients know without a model."""

import random

N_WORDS = 14


def words_of(voice: int) -> str:
    """The answer of voice `voice` to everything: its number, then numbers of its own.

    Digits are the model's surest tokens.
    """
    drawn = random.Random(voice)
    return f"{voice:02d} " + " ".join(str(drawn.randrange(100)) for _ in range(N_WORDS))


def voice_of(version: int, n_voices: int) -> int:
    """The voice of a version, never the same as its neighbours' voices."""
    return version % n_voices
