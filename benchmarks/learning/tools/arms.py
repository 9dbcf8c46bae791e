"""The arms: one world, one learner, and different rewards for a session."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.learning.tools import world

SILENT = "silent"
"""The judge that always abstains (`silent.py`)."""
COMMON: Mapping[str, Any] = {
    # the users wait for the learner, so there are no streams to protect
    "learner.max_latency_ratio": 0.0,
    # an operator asks for each step when all outcomes of a round are known, because an exit code is known before its
    # session's outcome
    "learner.min_rows": 10_000,
    "learner.max_wait": 1e9,
    "learner.max_rows": world.ROUND * world.N_TURNS,
    # one of the 21 tokens of a call is a choice, and the loss is a mean over tokens; the losses of KL and anchors are
    # not diluted like that
    "learner.recipe.rl_weight": 4.0,
    # chosen on seed 16: the score after 320 sessions was 0.89 with one, 0.86 with two and 1.00 with four
    "learner.recipe.num_iterations": 4,
    # 24 keys in four phrasings: the same call comes again, and each time its result is new evidence
    "learner.recipe.keep_duplicates": True,
}
"""Settings of every arm, over the sandbox's own (sandbox/burnish.toml)."""
_NO_JUDGE: Mapping[str, Any] = {"judge.model": SILENT, "judge.votes": 1}
_THREE_VOTES: Mapping[str, Any] = {"judge.votes": 3}  # at least three votes, because a majority of them writes a hint
_EXIT_CODES: Mapping[str, Any] = {"journal.verifiers": list(world.PROGRAMS)}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to reward.

    `has_steps`: a step's own exit code is part of its reward, which a run checks in the learner's rows. `has_hints`:
    users say of some failed calls which tool works.
    """

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_steps: bool = False
    has_hints: bool = False
    is_extra: bool = False
    """The arm runs only if it is named."""

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""
        return {**COMMON, **self.settings, "learner.recipe.seed": seed}

    @property
    def has_silent_judge(self) -> bool:
        return self.settings.get("judge.model") == SILENT


_ARMS = (
    Arm("untrained", "nothing is learned", {**_NO_JUDGE, **_EXIT_CODES, "learner.enabled": False}),
    Arm("outcome", "the session's outcome alone", _NO_JUDGE),
    Arm("integrated", "outcome and each call's exit code", {**_NO_JUDGE, **_EXIT_CODES}, has_steps=True),
    Arm("outcome+hints", "the same, and hints that name the tool", {**_NO_JUDGE, **_THREE_VOTES}, has_hints=True),
    Arm(
        "integrated+hints",
        "outcome, exit codes, and hints that name the tool",
        {**_NO_JUDGE, **_THREE_VOTES, **_EXIT_CODES},
        has_steps=True,
        has_hints=True,
    ),
    Arm("judged", "outcome and what the judge makes of each tool's result", has_steps=True, is_extra=True),
    *(
        Arm(
            f"tools-passes-{n}",
            f"integrated, with {n} optimiser step{'s' if n > 1 else ''} on each batch instead of 4",
            {**_NO_JUDGE, **_EXIT_CODES, "learner.recipe.num_iterations": n},
            has_steps=True,
            is_extra=True,
        )
        for n in (1, 2)
    ),
    Arm(
        "tools_shuffled",
        "integrated, each row with a reward of an earlier step",
        {**_NO_JUDGE, **_EXIT_CODES, "learner.recipe.shuffle_rewards": True},
        has_steps=True,
        is_extra=True,
    ),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}
PRODUCT, OTHER = "integrated", "outcome"
"""The arm behind the bar's figure, and the arm that is printed beside it."""
