"""The arms: the share of users who lie, and Burnish's defences. All use a learning rate that is too large."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.learning.drill import world
from benchmarks.learning.drill.attackers import Attack
from benchmarks.learning.style.arms import COMMON

SANDBOX_RATE = 1e-3
"""The learning rate of the sandbox's settings. A test compares the two."""
SHARES = (0.0, 0.1, 0.25, 0.4)


class Defence(StrEnum):
    """The defences that Burnish may use."""

    NONE = "undefended"
    OWN = "unexamined"  # all built-in defences
    ALL = "defended"  # and an operator's acceptance prompts in the gate


_OWN: Mapping[str, Any] = {"learner.monitors": "act", "canary.watch": True}
SETTINGS: Mapping[Defence, Mapping[str, Any]] = {
    Defence.NONE: {
        "learner.recipe.anchor_weight": 0.0,
        "learner.recipe.kl_weight": 0.0,
        "learner.recipe.user_cap": 1.0,
        "learner.recipe.session_cap": 1.0,
        "learner.recipe.new_users_cap": 1.0,
        "learner.recipe.n_liked_replies": 0,
        "learner.recipe.backoff": 1.0,
        "learner.monitors": "watch",
        "learner.recipe.outlier_z": 0.0,
        # the bound on a loss never exceeds 1, so no loss is too large
        "gate.forgetting_margin": 1.0,
        "canary.mode": "off",
        "canary.watch": False,
    },
    Defence.OWN: _OWN,
    Defence.ALL: {**_OWN, "gate.acceptance_margin": 0.025},
}
"""Settings over the sandbox's. Undefended, everything between a step and the served version is off, except the
mechanical checks and the probe, which cannot be switched off.
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """A share of the users attack: they lie, unless `attack` says what else they do."""

    name: str
    share: float
    defence: Defence
    attack: Attack = Attack.LIES

    @property
    def has_acceptance(self) -> bool:
        """Whether the gate asks the operator's prompts (`world.acceptance`), which the run writes to a file."""
        return self.defence is Defence.ALL

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run."""
        own = SETTINGS[self.defence]
        return {**COMMON, "learner.learning_rate": world.RATE_FACTOR * SANDBOX_RATE, **own, "learner.recipe.seed": seed}


def _arm(share: float, defence: Defence) -> Arm:
    return Arm(f"{defence}-{round(100 * share)}", share, defence)


ATTACKS = (Attack.NAMES, Attack.TOOLS)
_ATTACKED = (Arm(f"{attack}-25", 0.25, Defence.ALL, attack) for attack in ATTACKS)
ARMS: Mapping[str, Arm] = {
    arm.name: arm for arm in (*(_arm(share, defence) for share in SHARES for defence in Defence), *_ATTACKED)
}
BARRED = "defended-25"
"""The arm behind the bar's figure."""
ALSO_BARRED: Mapping[str, str] = {f"served_drop_{attack}": f"{attack}-25" for attack in ATTACKS}
"""The arms behind the figures of the other attackers, by figure."""
