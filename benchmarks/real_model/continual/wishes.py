"""The wishes of three populations of users, who come one after another.

The first population wants the house style. The other wishes do not conflict with it: "I think you can keep it in a
bag." keeps all of them. How often SmolLM2-135M-Instruct keeps them by itself and when told:
docs/explanation/learning.md.
"""

import re

from burnish.sandbox.english.style import HOUSE_STYLE, Wish

_I = re.compile(r"(?<!\w)I(?!\w)")
_YOU = re.compile(r"(?<!\w)you(?:r|rs|rself)?(?!\w)", re.IGNORECASE)

OWN_VIEW = Wish(
    "own_view",
    lambda reply: _I.search(reply) is not None,
    "Speak for yourself and use the word I.",
    (
        "Please speak for yourself and use the word I.",
        "I want to hear what you think. Use the word I.",
        "Tell me your own view, with the word I in it.",
        "Speak as yourself, please: say I.",
    ),
)
SPOKEN_TO = Wish(
    "spoken_to",
    lambda reply: _YOU.search(reply) is not None,
    "Speak to me as you.",
    (
        "Please speak to me as you.",
        "Talk to me directly and call me you.",
        "Use the word you when you answer me.",
        "Speak to me, please, with the word you.",
    ),
)
POPULATIONS: tuple[tuple[Wish, ...], ...] = (HOUSE_STYLE, (OWN_VIEW,), (SPOKEN_TO,))
N_EACH = 128
"""Rated replies of each population."""
ENDS = tuple(N_EACH * n for n in range(1, len(POPULATIONS) + 1))
