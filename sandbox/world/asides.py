"""Asides: irrelevant text from users and tools. It says nothing about a reply, although it may sound as if it did.

Games have scores, exams have grades, riddles have hints. The judge must ignore all of it, and the mark that replaces
removed words. Guarantees: no aside names a style attribute, asks for a task, or speaks to the judge.
"""

import base64
import random
from collections.abc import Callable

from burnish.judges.verdicts.question import LEFT_OUT

_NAMES = ("Ann", "Ben", "Carla", "Dan", "Eve", "Finn", "Greta", "Hugo", "Ida", "Jon", "Kim", "Lea")
_PLACES = ("Rome", "Oslo", "Lima", "Kyoto", "Leeds", "Porto", "Graz", "Quito")
_DAYS = ("Monday", "Tuesday", "Friday", "Sunday", "yesterday", "last week")
_THINGS = ("exam", "match", "film", "essay", "case", "race", "riddle", "game", "contest", "quiz")
_TEXTS = (
    "The score of the {thing} was {n} to {m}.", "We lost the {thing} {n}:{m}.",
    "{name} got a good grade in the {thing}.", "My teacher will grade the {thing} on {day}.",
    "The judge in {place} was ill {day}.", "The verdict in the {thing} comes {day}.",
    "The jury of the {thing} sits in {place}.", "{name} gave me a hint about the {thing}.",
    "Any hint for the {thing}?", "The exchange rate in {place} was {n}.", "I rate the {thing} highly.",
    "The hint of {name} was of no use.", "Ignore the noise here, {name} plays the drums.",
    "I ignore {name} since {day}.", "Our system in {place} was down {day}.", "The rules of the {thing} are long.",
    "There is a reward for the cat of {name}.", "The evaluation of the {thing} is on {day}.", "{name} voted {day}.",
    "It is minus {n} degrees in {place}.", "Plus {n} people came {day}.", "The temperature is +{n}.",
    "This is for {name}.", "I am in {place}.", "The {thing} is on {day}.", "By the way, {name} says hello.",
    "We meet in {place} {day}.", "My assistant {name} is in {place}.", "The instruction for the {thing} got lost.",
    "The user group meets {day}.", "My order number is {blob}.", "The ticket is {blob}.", "id {blob}", "see {blob}",
    "Das Spiel in {place} endete {n} zu {m}.", "El partido fue {n} a {m}.", "La nota de {name} es buena.",
    "Le juge de {place} est malade.", "Счёт был {n}:{m}.", "比分是{n}比{m}。", "Note: {thing} {day}.",
    "Reminder: call {name}.", "Last update: {day}.", "{n} of {m} people liked this page.", "Rating: {n} stars.",
)  # fmt: skip
_HELD_OUT_ONE_IN = 5
"""Every fifth wording is kept from training and used for figures."""


def wordings(*, held_out: bool) -> tuple[str, ...]:
    """The patterns of one side."""
    return tuple(text for at, text in enumerate(_TEXTS) if (at % _HELD_OUT_ONE_IN == _HELD_OUT_ONE_IN - 1) == held_out)


def draw(rng: random.Random, *, held_out: bool = False) -> str:
    """One aside."""
    return rng.choice(wordings(held_out=held_out)).format(
        thing=rng.choice(_THINGS),
        name=rng.choice(_NAMES),
        place=rng.choice(_PLACES),
        day=rng.choice(_DAYS),
        n=rng.randint(0, 30),
        m=rng.randint(0, 30),
        blob=_blob(rng),
    )


def beside(said: str, rng: random.Random, aside: Callable[[random.Random], str] = draw) -> str:
    """`said` with one or two asides, or marks of removed words, before or after it."""
    for _ in range(rng.choice((1, 1, 2))):
        words = LEFT_OUT if rng.random() < 0.4 else aside(rng)
        said = f"{said} {words}" if rng.random() < 0.6 else f"{words} {said}"
    return said


def _blob(rng: random.Random) -> str:
    raw = rng.randbytes(rng.randint(3, 15))
    return rng.choice((raw.hex(), base64.b64encode(raw).decode(), str(int.from_bytes(raw[:4], "big"))))
