"""The arms: one world, one learner, and what each arm leaves out, adds or breaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.learning.style.misled import MisledUser
from burnish.sandbox.world.users import SimulatedUser

COMMON: Mapping[str, Any] = {
    # the users wait for the learner, so it has no streams to be considerate of
    "learner.slow_down_at": 0.0,
    # they wait for it, not for a clock: how busy the machine is must not decide how many rows a step has
    "learner.max_wait": 3600.0,
    "learner.min_rows": 8,
}
"""Settings of every arm, over the sandbox's own (sandbox/burnish.toml)."""


OWN_GROUPS: Mapping[str, Any] = {
    "shadow.enabled": True,
    # other runs share the engine: it is never idle, and no client waits for it
    "shadow.max_others": 1000,
    "shadow.tokens_per_minute": 1_000_000,
    "shadow.user_per_hour": 1000,
    "shadow.max_tokens": 48,
}
"""Shadow groups of turns whose user said what was missing, graded on that."""
GROUPS: Mapping[str, Any] = {**OWN_GROUPS, "shadow.recall": 4, "learner.max_groups": 16}
"""Shadow groups of all turns, graded on what their users have wished for by then."""

_HINTS: Mapping[str, Any] = {"learner.rl_weight": 0.0, "shadow.enabled": False}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to treat what users say. `has_notes`: the harness puts what a user asked for before into the system
    prompt."""

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_notes: bool = False
    kind: type[SimulatedUser] = SimulatedUser
    is_extra: bool = False
    """Runs only where it is named."""

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""
        return {**COMMON, **self.settings, "learner.seed": seed}


_ARMS = (
    Arm("off", "nothing is learned", {"learner.enabled": False}),
    Arm("binary", "policy gradient alone", {"learner.distill_weight": 0.0}),
    Arm("opd", "hints alone", _HINTS),
    Arm("combined", "both"),
    Arm("binary+groups", "policy gradient, and shadow groups", {"learner.distill_weight": 0.0, **GROUPS}),
    Arm("opd+groups", "hints, and shadow groups", {"learner.rl_weight": 0.0, **GROUPS}),
    Arm("combined+groups", "both, and shadow groups", GROUPS),
    Arm(
        "memory", "a note per user in the system prompt, nothing is learned", {"learner.enabled": False}, has_notes=True
    ),
    Arm("memory+lora", "notes, and both", has_notes=True),
    Arm("shuffled", "rewards shuffled, hints left out", {"learner.shuffle_rewards": True}),
    Arm("hints_shuffled", "hints alone, each says any wish", _HINTS, kind=MisledUser),
    Arm(
        "combined+own-groups", "both, and shadow groups of turns with a hint, graded on that", OWN_GROUPS, is_extra=True
    ),
    Arm(
        "opd+own-groups",
        "hints, and shadow groups of turns with a hint, graded on that",
        {"learner.rl_weight": 0.0, **OWN_GROUPS},
        is_extra=True,
    ),
    Arm("gspo", "both, one ratio a reply", {"learner.policy_loss": "gspo"}, is_extra=True),
    Arm("cispo", "both, the ratio a weight", {"learner.policy_loss": "cispo"}, is_extra=True),
    Arm(
        "scaled",
        "both, advantages divided by their deviation over tokens",
        {"learner.scale_floor": 0.25},
        is_extra=True,
    ),
    Arm("dropped", "both, advantages below 0.05 left out", {"learner.min_advantage": 0.05}, is_extra=True),
    Arm("passes-1", "both, one optimiser step on each batch instead of two", {"learner.passes": 1}, is_extra=True),
    Arm("passes-4", "both, four optimiser steps on each batch", {"learner.passes": 4}, is_extra=True),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}
PRODUCT = "combined"
"""The arm that Burnish ships: the bars are read off it, but the gain over `BASELINE`, which is that of `WITH_GROUPS`.
"""
WITH_GROUPS, BASELINE = "combined+groups", "binary"
