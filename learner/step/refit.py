"""Refit: the adapter starts again from the base and learns all good replies together, in a few passes.

Step by step the policy learns a few good replies beside much noise, and those of the first steps so often that it knows
them by heart. From the base, the same replies teach more (docs/decisions/0035-refit-from-the-base.md). STaR (arXiv
2203.14465) starts each of its rounds from the base for the same reason.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from burnish.learner.data import good_replies
from burnish.learner.data.batch import finish
from burnish.learner.data.right_replies import again
from burnish.learner.data.rows import Row
from burnish.learner.objectives.anchor import Anchor
from burnish.learner.objectives.supervised import Supervised

if TYPE_CHECKING:
    from burnish.learner.run.trainer import Trainer
    from burnish.learner.run.work import Work

MIN_ROWS = 40
"""Good replies of the first refit. Fewer teach less than the steps have taught by then."""
GROWTH = 0.5
"""The next refit comes with this share of new good replies."""
N_PASSES = 3
BATCH = 16
"""Good replies of one optimiser step, and as many anchors."""
ANCHOR_FACTOR = 0.1
"""Factor on the anchors' weight. Without the noise of rewards and hints there is less to hold."""

N_ROWS = "refit/n_rows"
"""The metric of a step that was a refit."""


def is_due(n_new: int, n_last: int) -> bool:
    """True if there are enough good replies since the last refit, which had `n_last` (0: there was none)."""
    return n_new >= (GROWTH * n_last if n_last else MIN_ROWS)


def refit(trainer: "Trainer", work: "Work") -> dict[str, float]:
    """Refit the trainer's policy on the good replies of `work`, those of its own samples included.

    The optimiser's moments are cleared before and after. Returns metrics: `refit/n_rows`, and `refit/loss` in nats a
    token in the last pass. Raises NotFinite.
    """
    rows, anchors = _rows(trainer, work)
    if not rows:
        return {}
    trainer.policy.reset()
    trainer.optimizer.state.clear()
    for group in trainer.optimizer.param_groups:
        group["lr"] = trainer.recipe.learning_rate
    factors = {Anchor.name: ANCHOR_FACTOR * work.weight_factors.get(Anchor.name, 1.0)}
    n_drawn, loss = 0, 0.0
    for _ in range(N_PASSES):
        order, loss = torch.randperm(len(rows), generator=trainer.generator).tolist(), 0.0
        for start in range(0, len(rows), BATCH):
            some = [rows[i] for i in order[start : start + BATCH]]
            drawn = [anchors[(n_drawn + i) % len(anchors)] for i in range(min(BATCH, len(anchors)))]
            n_drawn += len(drawn)
            loss += trainer.descend([*some, *drawn], factors)[f"loss/{Supervised.name}"] * len(some) / len(rows)
    trainer.optimizer.state.clear()
    return {N_ROWS: float(len(rows)), "refit/loss": loss}


def _rows(trainer: "Trainer", work: "Work") -> tuple[list[Row], list[Row]]:
    """The good replies, weighed by the users behind them, and the anchors, both stamped."""
    good = [*good_replies.of_step(work.samples), *work.good]
    right = again(good[: trainer.recipe.refit_rows])
    anchors: Sequence[Row] = [Row(anchor.prompt_ids, anchor.completion_ids) for anchor in work.anchors]
    trainer.stamp([*right, *anchors])
    prepared = finish([], right, anchors, {}, {}, trainer.recipe)
    replies = [row for row in prepared.used if Supervised.stream in row.streams]
    return replies, [row for row in prepared.used if Anchor.stream in row.streams]
