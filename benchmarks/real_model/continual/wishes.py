"""The wishes of three populations of users, who come one after another.

The first population wants the house style. The other wishes do not conflict with it: "I think you can keep it in a
bag." keeps all of them. How often SmolLM2-135M-Instruct keeps them by itself and when told:
docs/explanation/learning.md. All users write the right reply as often. The later ones write the first ones' reply
behind a few words, so it keeps the first wishes, too.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.real_model.english import world
from burnish.sandbox.english.style import HOUSE_STYLE, Wish
from burnish.sandbox.english.users import EnglishUser

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
WRITTEN = {
    OWN_VIEW.name: ("I would say: {}", "I think this is right: {}", "Here is what I say: {}"),
    SPOKEN_TO.name: ("You should know: {}", "For you in short: {}", "This may help you: {}"),
}
"""How users write a right reply so that it keeps the wish."""
N_EACH = 128
"""Rated replies of each population."""
ENDS = tuple(N_EACH * n for n in range(1, len(POPULATIONS) + 1))


class Writer(EnglishUser):
    """A user who writes right replies in the way that the user wants them."""

    def __init__(self, seed: int, name: str, wishes: Sequence[Wish]) -> None:
        super().__init__(seed, name, wishes)
        self._words = random.Random(f"{seed} {name} writes")

    def opening(self) -> str:
        """Begin a conversation. Returns its first message."""
        text, asked = super().opening(), self._question
        for wish in self.wishes:
            if asked is not None and wish.name in WRITTEN and not wish.is_kept(asked.right):
                asked = replace(asked, right=self._words.choice(WRITTEN[wish.name]).format(asked.right))
        self._question = asked
        return text


def people(seed: int, place: int) -> list[EnglishUser]:
    """The users of a population, 0 for the first."""
    of = f" of {place + 1}" if place else ""
    return [Writer(seed, name + of, POPULATIONS[place]) for name in world.NAMES]
