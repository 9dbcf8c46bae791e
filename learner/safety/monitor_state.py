"""The monitors' memory from step to step, and their readings of the present step. It survives in a checkpoint.

The first steps are counted from the base. A rollback also restores the memory of the restored version.
"""

import math
from collections.abc import Mapping
from typing import Any

from burnish.config import Recipe
from burnish.learner.safety import monitors
from burnish.learner.safety.monitors import History, Reading

FIRST_KEPT, RECENT_KEPT = 20, 64
_KEPT = (
    "reward_mean",
    "reward_std",
    "entropy",
    "grad_norm",
    "grad_z",
    "kl_to_base/k3",
    "length",
    "repetition",
    "n_calls",
    "n_broken_calls",
    "offpolicy/mismatch_k3",
)


class MonitorState:
    """The memory of one line of versions."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._first: list[dict[str, float]] = []
        self._recent: list[dict[str, float]] = []

    def z_score(self, norm: float) -> float | None:
        """The z-score of `norm` against the norms of the last 64 steps. None if there are too few."""
        return monitors.z_score([step["grad_norm"] for step in self._recent if "grad_norm" in step], norm)

    def observe(self, metrics: Mapping[str, float]) -> dict[str, Reading]:
        """Record a step and judge it. Metrics that are not finite are not recorded, except as an infinite z-score."""
        step = {name: metrics[name] for name in _KEPT if name in metrics and math.isfinite(metrics[name])}
        if metrics.get("grad_z") == math.inf:
            step["grad_z"] = 1e9
        self._recent = [*self._recent, step][-RECENT_KEPT:]
        if len(self._first) < FIRST_KEPT:
            self._first = [*self._first, step]
        return monitors.read(History(self._first, self._recent), self._recipe)

    def state(self) -> dict[str, Any]:
        """As JSON values. Floats survive bit for bit."""
        return {"first": [dict(step) for step in self._first], "recent": [dict(step) for step in self._recent]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. An empty one clears everything."""
        self._first = [{key: float(value) for key, value in step.items()} for step in state.get("first", ())]
        self._recent = [{key: float(value) for key, value in step.items()} for step in state.get("recent", ())]
