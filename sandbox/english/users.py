"""Simulated users: they ask everyday questions, have a house style in mind, and correct with thumbs and words.

Pure Python, seeded: the same seed, name and replies give the same behaviour. A user praises a reply exactly if
`style.satisfies` is true.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from burnish.sandbox.english import questions, style
from burnish.sandbox.english.questions import Question
from burnish.sandbox.english.style import HOUSE_STYLE, Wish

NAMES_IT = 0.85
"""Probability that a user who misses something says what."""
SAYS_TWO = 0.5
"""Probability that a user who misses several things names two of them."""
WRITES_IT = 0.25
"""Probability that a user who misses something writes the reply that would have been right."""
ASKS_AGAIN = 0.2
"""Probability that a dissatisfied user repeats the correction as the next message and waits for a second reply."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """A user's reaction to one reply: a thumb, mostly with a comment if it points down.

    `demonstration` is a reply that would have been right. `message` is the user's next message in the conversation.
    None ends it.
    """

    satisfied: bool
    rating: Literal["up", "down"]
    comment: str | None = None
    message: str | None = None
    demonstration: str | None = None


class EnglishUser:
    """One user. `opening` begins a conversation, `react` continues it until its message is None."""

    def __init__(self, seed: int, name: str, wishes: Sequence[Wish] = HOUSE_STYLE) -> None:
        self.name = name
        self.wishes = tuple(wishes)
        self._rng = random.Random(f"{seed} {name}")
        self._question: Question | None = None
        self._unasked: list[Question] = []
        self._has_repeated = False

    def opening(self) -> str:
        """Begin a conversation. Returns its first message."""
        if not self._unasked:
            self._unasked = list(questions.training())
            self._rng.shuffle(self._unasked)
        self._question, self._has_repeated = self._unasked.pop(), False
        return self._question.text

    def react(self, reply: str) -> Reaction:
        """Judge the reply to the last message. Raises RuntimeError outside a conversation."""
        if self._question is None:
            raise RuntimeError(f"user {self.name} has asked for nothing: call opening() first")
        if style.satisfies(self._question, reply, self.wishes):
            self._question = None
            return Reaction(True, "up")
        comment, right = self._say(reply), self._write()
        if comment is not None and not self._has_repeated and self._rng.random() < ASKS_AGAIN:
            self._has_repeated = True
            return Reaction(False, "down", comment, comment, right)
        self._question = None
        return Reaction(False, "down", comment, demonstration=right)

    def _write(self) -> str | None:
        """The reply that would have been right. None if the user does not write one, or does not know one."""
        assert self._question is not None
        if self._rng.random() >= WRITES_IT:
            return None
        right = self._question.right
        return right if right and style.satisfies(self._question, right, self.wishes) else None

    def _say(self, reply: str) -> str | None:
        """What the user misses, in words. None if the user does not say it."""
        assert self._question is not None
        if self._rng.random() >= NAMES_IT:
            return None
        missed = list(style.missing(reply, self.wishes))
        if not missed:
            return self._rng.choice(style.OFF_TOPIC)
        self._rng.shuffle(missed)
        named = missed[: 2 if self._rng.random() < SAYS_TWO else 1]
        return " ".join(self._rng.choice(wish.sayings) for wish in named)
