"""The sandbox's tasks and replies: what is asked, what the right answer is, and how a reply looks.

A task has numeric arguments ("Reverse 5 12."), a reply has one answer and four binary style attributes:

    Sure!               opener
    - **12 5** :)       list, bold, smile

Guarantees: `satisfies` is strict (nothing but the right answer in the style asked for); the arguments' space is split
by a hash, so that an argument tuple is either for conversations or held out, never both, on every machine.
"""

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Style: TypeAlias = Mapping[str, bool]
"""Attribute name -> present or absent. A partial style leaves the missing attributes open."""

ATTRIBUTES = ("bold", "list", "opener", "smile")
OPENERS = ("Sure!", "Of course!", "Certainly!")
HOUSE_STYLE: Style = {"bold": False, "list": False, "opener": False, "smile": True}

_HELD_OUT_ONE_IN = 5
_LARGEST = 99


@dataclass(frozen=True, slots=True)
class Task:
    """One request: an operation of `OPERATIONS` on two or three numbers from 0 to 99."""

    operation: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply taken apart: its answer as text, and all four style attributes."""

    answer: str
    style: Style


OPERATIONS: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "copy": lambda numbers: numbers,
    "reverse": lambda numbers: numbers[::-1],
    "first": lambda numbers: numbers[:1],
    "last": lambda numbers: numbers[-1:],
    "swap": lambda numbers: (numbers[1], numbers[0], *numbers[2:]),
}

PHRASINGS: dict[str, tuple[str, ...]] = {
    "copy": ("Copy {}.", "Please copy {}.", "Repeat {}."),
    "reverse": ("Reverse {}.", "Please reverse {}.", "Say {} backwards."),
    "first": ("First of {}.", "What is the first of {}?", "Give the first of {}."),
    "last": ("Last of {}.", "What is the last of {}?", "Give the last of {}."),
    "swap": ("Swap {}.", "Please swap {}.", "Swap the first two of {}."),
}

_READERS = [
    (operation, re.compile(re.escape(phrasing).replace(re.escape("{}"), r"(\d+(?: \d+)+)"), re.IGNORECASE))
    for operation, phrasings in PHRASINGS.items()
    for phrasing in sorted(phrasings, key=len, reverse=True)
]
_OPENER = "|".join(re.escape(opener) for opener in OPENERS)
_REPLY = re.compile(
    rf"(?P<opener>(?:{_OPENER})(?P<gap>[ \n]))?(?P<list>- )?"
    r"(?P<bold>\*\*)?(?P<answer>\d+(?: \d+)*)(?(bold)\*\*)(?P<smile> :\))?"
)


def answer(task: Task) -> str:
    """The right answer: numbers with a space between them."""
    return " ".join(str(number) for number in OPERATIONS[task.operation](task.arguments))


def is_held_out(arguments: tuple[int, ...]) -> bool:
    """True if these arguments belong to the held-out fifth, which no conversation and no training row uses."""
    digest = hashlib.sha256(" ".join(str(number) for number in arguments).encode()).digest()
    return digest[0] % _HELD_OUT_ONE_IN == 0


def draw_task(rng: random.Random, *, held_out: bool = False) -> Task:
    """A task drawn evenly over operations, with two or three arguments from the requested side of the split."""
    operation = rng.choice(list(OPERATIONS))
    n_arguments = rng.choice((2, 3))
    while True:
        arguments = tuple(_draw_number(rng) for _ in range(n_arguments))
        if is_held_out(arguments) == held_out:
            return Task(operation, arguments)


def ask(task: Task, rng: random.Random) -> str:
    """The task in one of its phrasings."""
    return rng.choice(PHRASINGS[task.operation]).format(" ".join(str(number) for number in task.arguments))


def parse_task(text: str) -> Task | None:
    """The last task that a user's message asks for. None if it asks for none."""
    found = [
        (match.start(), Task(operation, tuple(int(number) for number in match[1].split())))
        for operation, reader in _READERS
        for match in reader.finditer(text)
    ]
    return max(found, key=lambda at: at[0])[1] if found else None


def render(text: str, style: Style, opener: str = OPENERS[0]) -> str:
    """A reply that gives `text` in `style`. Attributes that the style leaves out are absent."""
    bullet = "- " if style.get("list") else ""
    greeting = opener + ("\n" if bullet else " ") if style.get("opener") else ""
    marks = "**" if style.get("bold") else ""
    return f"{greeting}{bullet}{marks}{text}{marks}{' :)' if style.get('smile') else ''}"


def parse(reply: str) -> Reply | None:
    """The reply's answer and style. None if it contains anything else."""
    match = _REPLY.fullmatch(reply)
    if match is None or (match["gap"] is not None and (match["gap"] == "\n") != (match["list"] is not None)):
        return None
    return Reply(match["answer"], {name: match[name] is not None for name in ATTRIBUTES})


def style_of(reply: str) -> Style:
    """The four attributes as visible in any text, whether it parses as a reply or not."""
    return {
        "bold": reply.count("**") >= 2,
        "list": re.search(r"^- ", reply, re.MULTILINE) is not None,
        "opener": reply.startswith(OPENERS),
        "smile": ":)" in reply,
    }


def is_right(task: Task, reply: str) -> bool:
    """True if the reply gives the task's answer and nothing but style around it."""
    parsed = parse(reply)
    return parsed is not None and parsed.answer == answer(task)


def satisfies(reply: str, task: Task, style: Style) -> bool:
    """True if the reply is right and every attribute in `style` is as requested."""
    return is_right(task, reply) and not violations(reply, style)


def violations(reply: str, style: Style) -> tuple[str, ...]:
    """The attributes of `style` that the reply does not keep, in the order of ATTRIBUTES."""
    seen = style_of(reply)
    return tuple(name for name in ATTRIBUTES if name in style and seen[name] != style[name])


def count_request(start: int, end: int) -> str:
    """The long task: its answer has about three tokens per number."""
    return f"Count from {start} to {end}."


def count_answer(start: int, end: int) -> str:
    """The answer to `count_request`, without style."""
    return " ".join(str(number) for number in range(start, end + 1))


def _draw_number(rng: random.Random) -> int:
    # One-digit numbers would otherwise be a tenth of all, too few to be learned as well as the others.
    return rng.randint(0, 9) if rng.random() < 0.3 else rng.randint(10, _LARGEST)
