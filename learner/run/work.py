"""Work: what a step is given, and StepResult: what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.learner.data.rows import Tokens
from burnish.learner.data.samples import Sample
from burnish.learner.data.shadow_groups import Group
from burnish.learner.safety.hint_validation import LikedReply


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did. `is_update` is False where no version may come of it; `reason` says why then.

    `trained` and `idle` are interaction ids: rows that carried at least one term, and rows that carried none (advantage
    below 0.05 and no hint). By interaction id: `dropped` the codes of rows that were not let in, `refusals` those of
    the hints that the teacher or the jury refused, `hints` those that the teacher chose in the place of the first,
    `weights` what rows counted for where a cap made it less than 1; of shadow groups `groups` names those that carried
    their term, `ungrouped` the others with the reason, `group_weights` as `weights`. `metrics` are flat floats:
    `loss/<objective>`, `<objective>/<metric>`, `dropped/<code>`, and the step's own; of several passes they are the
    first one's, and `last/<name>` the last one's. `monitors` are the readings by name, each {"level": "green" |
    "yellow" | "red", "value", "why"}, and `level` is the worst of them.
    """

    is_update: bool
    trained: tuple[str, ...]
    idle: tuple[str, ...]
    metrics: Mapping[str, float]
    refusals: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    monitors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    level: str = "green"
    reason: str | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    ungrouped: Mapping[str, str] = field(default_factory=dict)
    group_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """What a step is given: see `Trainer.step`. What it has learned by its end is multiplied by `shrink`."""

    samples: Sequence[Sample]
    anchors: Sequence[Tokens] = ()
    groups: Sequence[Group] = ()
    weight_factors: Mapping[str, float] = field(default_factory=dict)
    has_momentum: bool = True
    rate: float = 1.0
    liked_replies: Sequence[LikedReply] = ()
    shrink: float = 1.0
