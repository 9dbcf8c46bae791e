"""The arms: one world, one learner, and what each arm leaves out, adds or breaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.learning.style.misled import MisledUser
from burnish.sandbox.world.users import SimulatedUser

COMMON: Mapping[str, Any] = {
    # the users wait for the learner, so there are no streams to protect
    "learner.max_latency_ratio": 0.0,
    # the users wait for the learner, so a busy machine must not decide how many rows a step has
    "learner.max_wait": 3600.0,
    "learner.min_rows": 8,
}
"""Settings of every arm, over the sandbox's own (sandbox/burnish.toml)."""


OWN_GROUPS: Mapping[str, Any] = {
    "groups.enabled": True,
    # other runs share the engine, so it is never idle, and no client waits for it
    "learner.recipe.group_max_others": 1000,
    "groups.tokens_per_minute": 1_000_000,
    "groups.max_per_user_hour": 1000,
    "learner.recipe.group_max_tokens": 48,
}
"""Shadow groups of turns with a hint, graded on the hint."""
GROUPS: Mapping[str, Any] = {**OWN_GROUPS, "groups.earlier_hints": 4, "learner.recipe.max_groups": 16}
"""Shadow groups of all turns, graded on the users' hints so far."""

_HINTS: Mapping[str, Any] = {"learner.recipe.rl_weight": 0.0, "groups.enabled": False}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to use the users' words.

    `has_notes`: the harness puts a user's earlier wishes into the system prompt.
    """

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_notes: bool = False
    kind: type[SimulatedUser] = SimulatedUser
    is_extra: bool = False
    """The arm runs only if it is named."""

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""
        return {**COMMON, **self.settings, "learner.recipe.seed": seed}


_ARMS = (
    Arm("off", "nothing is learned", {"learner.enabled": False}),
    Arm("binary", "policy gradient alone", {"learner.recipe.distill_weight": 0.0}),
    Arm("opd", "hints alone", _HINTS),
    Arm("combined", "both"),
    Arm("binary+groups", "policy gradient, and shadow groups", {"learner.recipe.distill_weight": 0.0, **GROUPS}),
    Arm("opd+groups", "hints, and shadow groups", {"learner.recipe.rl_weight": 0.0, **GROUPS}),
    Arm("combined+groups", "both, and shadow groups", GROUPS),
    Arm(
        "memory", "a note per user in the system prompt, nothing is learned", {"learner.enabled": False}, has_notes=True
    ),
    Arm("memory+lora", "notes, and both", has_notes=True),
    Arm("shuffled", "rewards shuffled, hints left out", {"learner.recipe.shuffle_rewards": True}),
    Arm("hints_shuffled", "hints alone, each says any wish", _HINTS, kind=MisledUser),
    Arm(
        "combined+own-groups", "both, and shadow groups of turns with a hint, graded on that", OWN_GROUPS, is_extra=True
    ),
    Arm(
        "opd+own-groups",
        "hints, and shadow groups of turns with a hint, graded on that",
        {"learner.recipe.rl_weight": 0.0, **OWN_GROUPS},
        is_extra=True,
    ),
    Arm("gspo", "both, one ratio a reply", {"learner.recipe.policy_loss": "gspo"}, is_extra=True),
    Arm("cispo", "both, the ratio a weight", {"learner.recipe.policy_loss": "cispo"}, is_extra=True),
    Arm(
        "scaled",
        "both, advantages divided by their deviation over tokens",
        {"learner.recipe.scale_floor": 0.25},
        is_extra=True,
    ),
    Arm("dropped", "both, advantages below 0.05 left out", {"learner.recipe.min_advantage": 0.05}, is_extra=True),
    Arm(
        "passes-1",
        "both, one optimiser step on each batch instead of two",
        {"learner.recipe.num_iterations": 1},
        is_extra=True,
    ),
    Arm("passes-4", "both, four optimiser steps on each batch", {"learner.recipe.num_iterations": 4}, is_extra=True),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}
PRODUCT = "combined"
"""The arm that Burnish ships and that the bars measure, except the gain over `BASELINE`, which is `WITH_GROUPS`'s."""
WITH_GROUPS, BASELINE = "combined+groups", "binary"
