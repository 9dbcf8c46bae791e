"""The arms: one world, the product's defaults, and what each arm leaves out, adds or breaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COMMON: Mapping[str, Any] = {
    # the users wait for the learner, so a busy machine must not decide how many rows a step has
    "learner.max_wait": 3600.0
}
"""The settings of every arm that are no defaults."""
_NO_GROUPS: Mapping[str, Any] = {"groups.enabled": False}
"""No shadow groups."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to use the users' words. `has_notes`: a user's earlier wishes are put into the system prompt."""

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_notes: bool = False

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""
        return {**COMMON, **self.settings, "learner.recipe.seed": seed}


_NO_WORDS = {f"learner.recipe.{name}": 0.0 for name in ("distill_weight", "sft_weight")}
_WORDS_ALONE = {f"learner.recipe.{name}": 0 for name in ("rl_weight", "sft_weight", "n_examples")}
PRODUCT, BASELINE = "both+groups", "rewards"
"""The arm with the product's defaults, and the one that it must beat."""
_ARMS = (
    Arm("off", "nothing is learned", {"learner.enabled": False}),
    Arm(BASELINE, "policy gradient alone", {**_NO_WORDS, **_NO_GROUPS}),
    Arm("hints", "hints alone", {**_WORDS_ALONE, **_NO_GROUPS}),
    Arm("both", "both, without shadow groups", _NO_GROUPS),
    Arm(PRODUCT, "both, and shadow groups: the defaults"),
    Arm("shuffled", "rewards shuffled, words left out", {"learner.recipe.shuffle_rewards": True}),
    Arm("memory", "a note per user in the system prompt, nothing is learned", {"learner.enabled": False}, True),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}
