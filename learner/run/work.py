"""Work, the input of a step, and StepResult, its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.learner.data.good_replies import GoodReply
from burnish.learner.data.rows import Tokens
from burnish.learner.data.samples import Sample
from burnish.learner.data.shadow_groups import Group
from burnish.learner.safety.hint_validation import LikedReply


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of a step. If `is_update` is False, no version may come of it and `reason` says why.

    `trained` and `idle` are interaction ids: rows that carried at least one term, and rows that carried none (advantage
    below 0.05 and no hint). By interaction id: `dropped` holds the codes of rows that were not admitted, `refusals`
    those of refused hints, `hints` those that the teacher chose in place of the first, `weights` the weights that a cap
    set below 1. Of shadow groups: `groups` names those that carried their term, `ungrouped` the others with the reason,
    `group_weights` is as `weights`. `metrics` are flat floats: `loss/<objective>`, `<objective>/<metric>`,
    `dropped/<code>`, and the step's own. If there are several passes they are those of the first, and `last/<name>`
    those of the last. `monitors` are the readings by name, each {"level": "green" | "yellow" | "red", "value", "why"}.
    `level` is the worst of them. `logprob_changes` says by how much the step changed the log-prob of each reply, in
    nats a token, before any shrinking. It is empty if the step's length was not measured.
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
    logprob_changes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """The input of a step: see `Trainer.step`. The adapter is multiplied by `shrink` at the end.

    `good` are good replies of earlier steps: they are learned again, and the teacher may read them as examples.
    """

    samples: Sequence[Sample]
    anchors: Sequence[Tokens] = ()
    groups: Sequence[Group] = ()
    weight_factors: Mapping[str, float] = field(default_factory=dict)
    has_momentum: bool = True
    rate: float = 1.0
    liked_replies: Sequence[LikedReply] = ()
    shrink: float = 1.0
    good: Sequence[GoodReply] = ()
