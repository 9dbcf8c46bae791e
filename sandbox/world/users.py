"""Simulated users: they ask for tasks, have a house style in mind, and (mostly) say what they miss.

Pure Python, seeded: the same seed, name and replies give the same messages. Guarantees: arguments come from the
conversation side of the split only. A user is satisfied exactly if `language.satisfies` is true.
"""

import random
from dataclasses import dataclass
from typing import Literal

from burnish.sandbox.world import language, reactions, style_hints
from burnish.sandbox.world.language import HOUSE_STYLE, Style, Task

NAMES_VIOLATION = 0.8
"""Probability that a user who misses something names it."""

_THANKS = 0.85
_LONGEST_SESSION = 4


@dataclass(frozen=True, slots=True)
class Reaction:
    """The user's reaction to one reply.

    `message` is what the user says next. None ends the session, and `rating` and `comment` are then left as explicit
    feedback. Otherwise both are None, because the message holds the opinion.
    """

    message: str | None
    satisfied: bool
    rating: Literal["up", "down"] | None = None
    comment: str | None = None


class SimulatedUser:
    """One user. `opening` begins a session, `react` continues it until its message is None. Then `opening` begins
    another.
    """

    def __init__(self, seed: int, name: str, style: Style = HOUSE_STYLE) -> None:
        self.name = name
        self.style = style
        self._rng = random.Random(f"{seed} {name}")
        self._task: Task | None = None
        self._n_left = 0

    @property
    def task(self) -> Task | None:
        """The task that the user waits for. None outside a session."""
        return self._task

    def opening(self) -> str:
        """Begin a session of one to four tasks. Returns its first message."""
        self._n_left = self._rng.randint(1, _LONGEST_SESSION)
        return self._request()

    def react(self, reply: str) -> Reaction:
        """Judge the reply to the last request. Raises RuntimeError outside a session."""
        if self._task is None:
            raise RuntimeError(f"user {self.name} has asked for nothing: call opening() first")
        is_right = language.is_right(self._task, reply)
        missing = language.violations(reply, self.style)
        satisfied = is_right and not missing
        said = self._say(is_right, missing)
        if self._n_left == 0:
            self._task = None
            return Reaction(None, satisfied, "up" if satisfied else "down", said)
        if said is None:
            said = self._rng.choice(reactions.THANKS if satisfied else reactions.UNHAPPY)
            if satisfied and self._rng.random() > _THANKS:
                return Reaction(self._request(), satisfied)
        return Reaction(reactions.then(style_hints.sentence(said), self._request(), self._rng), satisfied)

    def _request(self) -> str:
        self._n_left -= 1
        self._task = language.draw_task(self._rng)
        return language.ask(self._task, self._rng)

    def _say(self, is_right: bool, missing: tuple[str, ...]) -> str | None:
        """What is wrong with the reply. None if nothing is, or if the user does not name it."""
        if not is_right:
            return self._rng.choice(reactions.WRONG)
        if not missing or self._rng.random() >= NAMES_VIOLATION:
            return None
        name = self._rng.choice(missing)
        return style_hints.say((name, self.style[name]), self._rng)


def listener_request(rng: random.Random) -> str:
    """A request with a long answer (some 270 tokens), for holding streams open."""
    return language.count_request(rng.randint(0, 5), rng.randint(92, 99))
