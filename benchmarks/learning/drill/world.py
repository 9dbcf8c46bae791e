"""The world of the drill, frozen: the users, how many of them lie, the prompts, and the schedule.

`FILES` are hashed together, like those of style personalisation. A change to one of them makes a new world without
measurements.

All users are simulated and share one agent. There are twenty, so that 10, 25 and 40 % are whole numbers of people. The
seed draws who lies. After every `ROUND` interactions they wait until their turns are judged and every due candidate is
decided: a round is the *gate's period*. A program computes the score: correct answer and all four attributes, at
temperature 1. Each reply has its own random seed, the same in every look, so that two versions differ only by
themselves and not by the draw.
"""

import random
from functools import cache
from pathlib import Path

from benchmarks.learning.drill import poisoned
from benchmarks.learning.drill.poisoned import PoisonedUser
from benchmarks.learning.style.world import FILES as STYLE_FILES
from burnish.sandbox.world import heldout, language, prompt_sets
from burnish.sandbox.world.heldout import HeldOutPrompt
from burnish.sandbox.world.language import Task
from burnish.sandbox.world.users import SimulatedUser

NAMES = tuple(f"user {n}" for n in range(1, 21))
N_INTERACTIONS = 512
ROUND = 16
PROMPTS: tuple[HeldOutPrompt, ...] = heldout.prompts()
"""The 240 prompts of a look. During learning, a version answers one half of them up to 0.1 better than the other."""
N_DRAWS = 2
"""Replies to each prompt."""
FIRST_DRAW = 1_000
"""The engine's seed for the first reply. The next replies use the next numbers."""
N_ACCEPTANCE = 360
"""The operator's own prompts, for the gate of arms that have acceptance prompts (`own_prompts`)."""
RATE_FACTOR = 3.0
"""The learning rate, as a multiple of the sandbox's."""

FILES: tuple[Path, ...] = (Path(__file__), Path(poisoned.__file__), *STYLE_FILES)


def liars(seed: int, share: float) -> frozenset[str]:
    """The users who lie. Raises ValueError if the share is not a whole number of people."""
    n = round(share * len(NAMES))
    if abs(n - share * len(NAMES)) > 1e-9:
        raise ValueError(f"expected a share of whole people among {len(NAMES)}, got {share:g}")
    return frozenset(random.Random(f"liars {seed}").sample(NAMES, n))


def people(seed: int, share: float) -> list[SimulatedUser]:
    """The users of a run. A share of them lie."""
    lying = liars(seed, share)
    return [PoisonedUser(seed, name) if name in lying else SimulatedUser(seed, name) for name in NAMES]


@cache
def own_prompts() -> tuple[HeldOutPrompt, ...]:
    """The operator's prompts: requests of the held-out kind that are neither scored nor trained on."""
    rng, scored = random.Random("the operator's own"), {prompt.task for prompt in PROMPTS}
    found: dict[Task, HeldOutPrompt] = {}
    while len(found) < N_ACCEPTANCE:
        task = language.draw_task(rng, held_out=True)
        if task not in scored:
            found.setdefault(task, HeldOutPrompt(task, language.ask(task, rng)))
    return tuple(found.values())


def acceptance() -> str:
    """The operator's prompts in the format of `gate.acceptance_prompts`: the correct answer in the house style."""
    return prompt_sets.to_jsonl(
        {
            "messages": prompt.messages,
            "tools": None,
            "check": prompt_sets.reply_pattern(language.answer(prompt.task), language.HOUSE_STYLE),
        }
        for prompt in own_prompts()
    )


def score(replies: list[str]) -> float:
    """The share of correct replies in the house style, 0 to 1.

    One reply to each of `PROMPTS` in order, once per draw.
    """
    return heldout.breakdown_of(PROMPTS * (len(replies) // len(PROMPTS)), replies)["satisfied"]
