"""The world of the drill, frozen: who the users are, how many of them lie, what is asked of the agent and when.

`FILES` are hashed together, as those of style personalisation are; whoever changes one makes a world in which nothing has been measured.

All users are simulated and share one agent. Twenty of them, so that 10, 25 and 40 % are whole people; who lies is drawn from the
seed. They wait after every `ROUND` interactions until what was said has been judged and every candidate that was due has been decided:
a round is the *gate's period*. The score is a program's: right answer and all four attributes, at temperature 1, with a random seed of its
own for every reply, the same in every look, so that two versions differ by what they are and not by what was drawn.
"""

import random
from pathlib import Path

from benchmarks.learning.drill import poisoned
from benchmarks.learning.drill.poisoned import PoisonedUser
from benchmarks.learning.style.world import FILES as STYLE_FILES
from burnish.sandbox import heldout, language, retention
from burnish.sandbox.heldout import HeldOutPrompt
from burnish.sandbox.users import SimulatedUser

NAMES = tuple(f"user {n}" for n in range(1, 21))
N_INTERACTIONS = 512
ROUND = 16
PROMPTS: tuple[HeldOutPrompt, ...] = heldout.prompts()[::2]
"""What a look asks: every second held-out prompt, 120 of them."""
N_DRAWS = 4
"""Replies to each prompt. Of 120 replies, one to each, the score of two versions that are as good differs by 0.03 to 0.05 as it falls."""
FIRST_DRAW = 1_000
"""The engine's seed for the first reply; the next ones count on."""
ACCEPTANCE: tuple[HeldOutPrompt, ...] = heldout.prompts()[1::2]
"""The operator's own prompts, for the gate of the arms that have some: the other half of the held-out ones, none of them scored."""
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


def acceptance() -> str:
    """The operator's prompts as `gate.acceptance` reads them: the right answer in the house style."""
    return retention.to_jsonl(
        {
            "messages": prompt.messages,
            "tools": None,
            "check": retention.reply_pattern(language.answer(prompt.task), language.HOUSE_STYLE),
        }
        for prompt in ACCEPTANCE
    )


def score(replies: list[str]) -> float:
    """The share of right replies in the house style, 0 to 1: one reply to each of `PROMPTS` in order, as often as there are draws."""
    return heldout.breakdown_of(PROMPTS * (len(replies) // len(PROMPTS)), replies)["satisfied"]
