"""The two worlds that a demo can run in: plain English for a real model, and the sandbox's toy language."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from burnish.sandbox.english import questions, style
from burnish.sandbox.english.users import EnglishUser
from burnish.sandbox.world import heldout
from burnish.sandbox.world.users import SimulatedUser, listener_request

Conversation = Sequence[Mapping[str, str]]


class Reaction(Protocol):
    """A user's reaction to a reply. `message` continues the conversation, None ends it.

    It may have a `demonstration`, a reply that would have been right.
    """

    @property
    def satisfied(self) -> bool: ...
    @property
    def rating(self) -> str | None: ...
    @property
    def comment(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...


class User(Protocol):
    """Somebody who asks and reacts."""

    name: str

    def opening(self) -> str: ...
    def react(self, reply: str) -> Reaction: ...


@dataclass(frozen=True, slots=True)
class World:
    """What the users of a demo are like, and how their agent is examined.

    `exam` are the held-out conversations and `score` grades one reply to each. `prompted` are the same conversations
    with the users' wishes in the prompt, empty if there are none. `think_seconds` are the bounds of a user's pause.
    Some clients hold long streams open with `listener`, so that versions go live under streams. None: no such clients.
    """

    title: str
    make_user: Callable[[int, str], User]
    exam: tuple[Conversation, ...]
    score: Callable[[Sequence[str]], float]
    prompted: tuple[Conversation, ...]
    listener: Callable[[random.Random], str] | None
    max_tokens: int
    temperature: float
    think_seconds: tuple[float, float]


def sandbox() -> World:
    """The toy language, for the model of two million parameters."""
    return World(
        title="simulated users, sandbox model",
        make_user=SimulatedUser,
        exam=tuple(prompt.messages for prompt in heldout.prompts()),
        score=heldout.score,
        prompted=(),
        listener=listener_request,
        max_tokens=48,
        temperature=1.0,
        think_seconds=(2.0, 6.0),
    )


def english() -> World:
    """Plain English, for a real language model. The users' pauses leave a small machine time to answer."""
    asked = questions.heldout()
    wishes = style.instructions()
    return World(
        title="simulated users, plain English",
        make_user=EnglishUser,
        exam=tuple(question.messages for question in asked),
        score=lambda replies: style.breakdown(asked, replies)["score"],
        prompted=tuple([{"role": "user", "content": f"{question.text}\n\n{wishes}"}] for question in asked),
        listener=None,
        max_tokens=64,
        temperature=0.6,
        # Users who begin together and pause alike come in waves. Between two waves the learner has the machine.
        think_seconds=(9.0, 12.0),
    )
