"""Style instructions: one canonical hint per attribute and direction, and the many wordings that users have for it.

Guarantees: `CANONICAL` is what the judge writes and what the base obeys. Every wording names exactly one attribute in
exactly one direction, and `read` finds it again.
"""

import random

from burnish.sandbox.world.language import ATTRIBUTES, Style

Wish = tuple[str, bool]
"""One attribute in one direction: ("bold", False) asks for no bold."""

WISHES: tuple[Wish, ...] = tuple((name, wanted) for name in ATTRIBUTES for wanted in (True, False))

_ARTICLES = {"bold": "", "list": "a ", "opener": "an ", "smile": "a "}
CANONICAL: dict[Wish, str] = {
    (name, wanted): f"{'Use' if wanted else 'Do not use'} {_ARTICLES[name]}{name}." for name, wanted in WISHES
}

_NOUNS: dict[str, tuple[tuple[str, str], ...]] = {  # (bare noun, noun with its article)
    "bold": (("bold", "bold"), ("bold text", "bold text")),
    "list": (("list", "a list"), ("bullets", "bullets")),
    "opener": (("opener", "an opener"), ("greeting", "a greeting")),
    "smile": (("smile", "a smile"), ("smiley", "a smiley")),
}
_WANTED = (
    "use {a} please", "please use {a}", "I asked for {a}", "you forgot the {n}", "add {a} please", "where is the {n}?",
    "I want {a}", "I miss the {n}", "with {a} please",
)  # fmt: skip
_UNWANTED = (
    "no {n} please", "please, no {n}", "I asked for no {n}", "drop the {n}", "skip the {n}", "leave out the {n}",
    "I do not want {a}", "without the {n} please", "do not use {a}", "I told you no {n}",
)  # fmt: skip

WORDINGS: dict[Wish, tuple[str, ...]] = {
    (name, wanted): tuple(
        pattern.format(n=noun, a=with_article)
        for pattern in (_WANTED if wanted else _UNWANTED)
        for noun, with_article in _NOUNS[name]
    )
    for name, wanted in WISHES
}


def say(wish: Wish, rng: random.Random) -> str:
    """One of the users' wordings, bare: lower case, no full stop."""
    return rng.choice(WORDINGS[wish])


def sentence(text: str) -> str:
    """A bare wording as a sentence of its own."""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


def instruct(wish: Wish, rng: random.Random) -> str:
    """The wish as a sentence: the canonical hint as often as all other wordings together."""
    return CANONICAL[wish] if rng.random() < 0.5 else sentence(say(wish, rng))


def canonical(style: Style) -> str:
    """The hints that ask for `style`, canonical, in the order of the style."""
    return " ".join(CANONICAL[wish] for wish in style.items())


def read(text: str) -> Wish | None:
    """The wish that a canonical hint or a user's wording expresses. None for any other text."""
    bare = text.strip().rstrip(".?!").lower()
    for wish in WISHES:
        if bare in {wording.rstrip("?").lower() for wording in (CANONICAL[wish].rstrip("."), *WORDINGS[wish])}:
            return wish
    return None
