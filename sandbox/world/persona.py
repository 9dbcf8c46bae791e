"""The untrained base's taste: a formal and a casual persona, mixed 70 to 30.

Guarantees (held by tests): the house style occurs in about nine replies of a hundred, so that it can be found and there
is much to learn. Every attribute is present, and absent, in at least fifteen of a hundred.
"""

import random

from burnish.sandbox.world.language import ATTRIBUTES, OPENERS, Style

FORMAL_SHARE = 0.7
FORMAL = {"bold": 0.55, "list": 0.45, "opener": 0.3, "smile": 0.15}
CASUAL = {"bold": 0.2, "list": 0.2, "opener": 0.5, "smile": 0.75}
"""Probability that each attribute is present. They are independent given the persona."""


def draw_style(rng: random.Random, wishes: Style | None = None) -> dict[str, bool]:
    """A full style: the persona's taste, overridden by `wishes`."""
    taste = FORMAL if rng.random() < FORMAL_SHARE else CASUAL
    return {name: rng.random() < taste[name] for name in ATTRIBUTES} | dict(wishes or {})


def draw_opener(rng: random.Random) -> str:
    """One of the openers, with equal probability."""
    return rng.choice(OPENERS)


def probability(style: Style) -> float:
    """The probability that an unprompted reply satisfies `style`: the exact value, for tests to compare with."""
    total = 0.0
    for share, taste in ((FORMAL_SHARE, FORMAL), (1 - FORMAL_SHARE, CASUAL)):
        chance = share
        for name, wanted in style.items():
            chance *= taste[name] if wanted else 1 - taste[name]
        total += chance
    return total
