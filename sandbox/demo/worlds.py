"""The two worlds that a demo can run in: plain English for a real model, and the sandbox's toy language."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from burnish.sandbox.english import questions, style
from burnish.sandbox.english.users import EnglishUser
from burnish.sandbox.world import heldout
from burnish.sandbox.world.users import SimulatedUser, listener_request
from burnish.server.rollout.forgetting_prompts import RetentionPrompt, read_prompts

UNSEEN = Path(__file__).with_name("unseen.jsonl")
"""Prompts about other things than the wishes, each with a program's check. No gate asks them, and no anchor is among
them."""

LONG_REQUESTS = ("Write a long story about this:", "Explain this at length:", "Write an essay about this question:")
"""What listeners ask for, before a question."""

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
    `abilities` are prompts about other things, of which the agent must still answer as many as the base, empty if that
    is not measured. Users who wait for the learner say nothing while a step is due or under way. There the listeners,
    who ask for long replies with `listener`, come only during trials. Elsewhere they are always there.
    """

    title: str
    make_user: Callable[[int, str], User]
    exam: tuple[Conversation, ...]
    score: Callable[[Sequence[str]], float]
    prompted: tuple[Conversation, ...]
    abilities: tuple[RetentionPrompt, ...]
    listener: Callable[[random.Random], str]
    max_tokens: int
    temperature: float
    think_seconds: tuple[float, float]
    waits_for_learner: bool


def sandbox() -> World:
    """The toy language, for the model of two million parameters."""
    return World(
        title="simulated users, sandbox model",
        make_user=SimulatedUser,
        exam=tuple(prompt.messages for prompt in heldout.prompts()),
        score=heldout.score,
        prompted=(),
        abilities=(),
        listener=listener_request,
        max_tokens=48,
        temperature=1.0,
        think_seconds=(2.0, 6.0),
        waits_for_learner=False,
    )


def english() -> World:
    """Plain English, for a real language model."""
    asked = questions.heldout()
    wishes = style.instructions()
    return World(
        title="simulated users, plain English",
        make_user=EnglishUser,
        exam=tuple(question.messages for question in asked),
        score=lambda replies: style.breakdown(asked, replies)["score"],
        prompted=tuple([{"role": "user", "content": f"{question.text}\n\n{wishes}"}] for question in asked),
        abilities=tuple(prompt for prompt in read_prompts(UNSEEN, None) if not prompt.tools),
        listener=lambda rng: f"{rng.choice(LONG_REQUESTS)} {rng.choice(questions.training()).text}",
        max_tokens=64,
        temperature=0.2,  # as the model's card recommends
        think_seconds=(2.0, 4.0),
        # The demo has 15 minutes for what takes people days. Their pauses are longer than a step, so the machine is
        # free for it. Here it is free because they wait.
        waits_for_learner=True,
    )
