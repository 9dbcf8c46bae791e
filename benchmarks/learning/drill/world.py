"""The world of the drill, frozen: who the users are, how many of them lie, what is asked of the agent and when.

`FILES` are hashed together, as those of style personalisation are; whoever changes one makes a world in which nothing
has been measured.

All users are simulated and share one agent. Twenty of them, so that 10, 25 and 40 % are whole people; who lies is drawn
from the seed. They wait after every `ROUND` interactions until what was said has been judged and every candidate that
was due has been decided: a round is the *gate's period*. The score is a program's: right answer and all four
attributes, at temperature 1, with a random seed of its own for every reply, the same in every look, so that two
versions differ by what they are and not by what was drawn.
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
"""What a look asks, 240 of them. A version in the middle of learning answers one half of them up to 0.1 better than the
other."""
N_DRAWS = 2
"""Replies to each prompt."""
FIRST_DRAW = 1_000
"""The engine's seed for the first reply; the next ones count on."""
N_ACCEPTANCE = 360
"""The operator's own prompts, for the gate of the arms that have some (`own_prompts`)."""
RATE_FACTOR = 3.0
"""How much too large the learning rate is, as a multiple of the sandbox's."""

FILES: tuple[Path, ...] = (Path(__file__), Path(poisoned.__file__), *STYLE_FILES)


def liars(seed: int, share: float) -> frozenset[str]:
    """The users who lie. Raises ValueError where the share is not of whole people."""
    n = round(share * len(NAMES))
    if abs(n - share * len(NAMES)) > 1e-9:
        raise ValueError(f"expected a share of whole people among {len(NAMES)}, got {share:g}")
    return frozenset(random.Random(f"liars {seed}").sample(NAMES, n))


def people(seed: int, share: float) -> list[SimulatedUser]:
    """The users who talk, of whom `share` lie."""
    lying = liars(seed, share)
    return [PoisonedUser(seed, name) if name in lying else SimulatedUser(seed, name) for name in NAMES]


@cache
def own_prompts() -> tuple[HeldOutPrompt, ...]:
    """The operator's: other requests of the held-out kind, so that none is scored and none can be trained on."""
    rng, scored = random.Random("the operator's own"), {prompt.task for prompt in PROMPTS}
    found: dict[Task, HeldOutPrompt] = {}
    while len(found) < N_ACCEPTANCE:
        task = language.draw_task(rng, held_out=True)
        if task not in scored:
            found.setdefault(task, HeldOutPrompt(task, language.ask(task, rng)))
    return tuple(found.values())


def acceptance() -> str:
    """The operator's prompts as `gate.acceptance_prompts` reads them: the right answer in the house style."""
    return prompt_sets.to_jsonl(
        {
            "messages": prompt.messages,
            "tools": None,
            "check": prompt_sets.reply_pattern(language.answer(prompt.task), language.HOUSE_STYLE),
        }
        for prompt in own_prompts()
    )


def score(replies: list[str]) -> float:
    """The share of right replies in the house style, 0 to 1: one reply to each of `PROMPTS` in order, as often as there
    are draws."""
    return heldout.breakdown_of(PROMPTS * (len(replies) // len(PROMPTS)), replies)["satisfied"]
