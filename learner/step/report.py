"""The journal's report on a step: its outcome per row, and the readings of the monitors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.learner.run.work import StepResult


@dataclass(frozen=True, slots=True)
class StepReport:
    """By interaction id: `idle` rows that carried no term, `dropped` rows and refused hints (`refusals`) with their
    codes, `hints` that the teacher chose in place of the first, and `weights` that a cap set below 1. `monitors`,
    `level` and `logprob_changes` are those of `StepResult`. `ungrouped` and `group_weights` are `dropped` and `weights`
    of shadow groups.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    idle: Sequence[str] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    monitors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    level: str | None = None
    ungrouped: Mapping[str, str] = field(default_factory=dict)
    group_weights: Mapping[str, float] = field(default_factory=dict)
    logprob_changes: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, result: "StepResult") -> "StepReport":
        """The report on a trainer's result."""
        return cls(
            result.metrics,
            result.idle,
            result.dropped,
            result.refusals,
            result.hints,
            result.weights,
            result.monitors,
            result.level if result.monitors else None,
            result.ungrouped,
            result.group_weights,
            result.logprob_changes,
        )
