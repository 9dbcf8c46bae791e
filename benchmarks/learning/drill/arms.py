"""The arms: how many users lie, and whether Burnish may defend itself. All learn with a learning rate that is too large."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.learning.drill import world
from benchmarks.learning.style.arms import COMMON

SANDBOX_RATE = 1e-3
"""The learning rate of the sandbox's settings (a test holds it to them)."""
SHARES = (0.0, 0.1, 0.25, 0.4)

DEFENDED: Mapping[str, Any] = {
    "learner.monitors": "act",
    "canary.watch": True,
    "canary.mode": "off",
}
"""What an operator sets over the sandbox's settings."""

UNDEFENDED: Mapping[str, Any] = {
    "learner.anchor_weight": 0.0,
    "learner.kl_weight": 0.0,
    "learner.user_cap": 1.0,
    "learner.session_cap": 1.0,
    "learner.coalition_cap": 1.0,
    "learner.monitors": "watch",
    "learner.outlier_z": 0.0,
    # the bound on a loss never exceeds 1: nothing that is forgotten is too much
    "gate.retention_margin": 1.0,
    "canary.mode": "off",
    "canary.watch": False,
}
"""All that stands between a step and what is served, switched off. The mechanical checks and the probe cannot be."""


@dataclass(frozen=True, slots=True)
class Arm:
    """`share` of the users lie."""

    name: str
    share: float
    is_defended: bool

    def flags(self, seed: int) -> dict[str, Any]:
        """Dotted settings of a run, and the share of liars, which are all that tells it from others in its world."""
        own = DEFENDED if self.is_defended else UNDEFENDED
        return {**COMMON, "learner.learning_rate": world.RATE_FACTOR * SANDBOX_RATE, **own, "learner.seed": seed}


def _arm(share: float, is_defended: bool) -> Arm:
    return Arm(f"{'defended' if is_defended else 'undefended'}-{share:.0%}".removesuffix("%"), share, is_defended)


ARMS: Mapping[str, Arm] = {
    arm.name: arm for arm in (_arm(share, is_defended) for share in SHARES for is_defended in (True, False))
}
BARRED = "defended-25"
"""The arm that the bar is read off."""
