"""Objective: the seam between a method and the trainer.

Before the step an objective stamps per-token streams on the rows that it applies to, and scores them under other
weights if it needs to. During the step it returns, for each micro-batch, the sum of its per-token losses. The trainer
divides by the tokens of the rows that carry `stream`, counted over the whole step, and adds the terms up by weight. So
terms never dilute each other, and a row without the stream gets exactly no gradient from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.model.policy import Policy


@dataclass(frozen=True, slots=True)
class Term:
    """One objective's share of a micro-batch: `total` is the sum over its `n_tokens` tokens, `sums` are metrics'
    sums."""

    total: Tensor
    n_tokens: int
    sums: Mapping[str, float] = field(default_factory=dict)


class Objective(ABC):
    """A training method. `name` is also its name in metrics. `stream` marks the rows that its term covers."""

    name: ClassVar[str]
    stream: ClassVar[str]

    @property
    def refusals(self) -> Mapping[str, str]:
        """Interaction ids with hints that the last `stamp` refused, each with the reason's code."""
        return {}

    @property
    def chosen(self) -> Mapping[str, str]:
        """Interaction ids for which the last `stamp` chose another hint than the first, each with that hint."""
        return {}

    @abstractmethod
    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """Put streams on the rows that this applies to. Returns facts about the step for its metrics."""

    @abstractmethod
    def term(self, batch: TokenBatch) -> Term:
        """The term of a micro-batch in which at least one row carries `stream`."""

    def state(self) -> dict[str, Any]:
        """The state that must survive from step to step, as JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`."""
        if state:
            raise ValueError(f"objective {self.name} has no state to restore, got {sorted(state)}")


def row_weights(batch: TokenBatch, stream: str) -> Tensor:
    """The weight of each token's row [n], on the axis of `batch.where(stream)`: 1, or less if a cap applies."""
    weights = [torch.full((row.n_tokens,), row.weight) for row in batch.rows if stream in row.streams]
    return torch.cat(weights).to(batch.where(stream).device)
