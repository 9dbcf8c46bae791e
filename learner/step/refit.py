"""Refit: the adapter starts again from the base and learns all good replies together, in a few passes.

Step by step the policy learns a few good replies beside much noise, and those of the first steps so often that it knows
them by heart. From the base, the same replies teach more (docs/decisions/0035-refit-from-the-base.md). STaR (arXiv
2203.14465) starts each of its rounds from the base for the same reason.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from burnish.errors import LearnerError
from burnish.learner.data import good_replies
from burnish.learner.data.batch import finish, measured
from burnish.learner.data.right_replies import again
from burnish.learner.data.rows import Row
from burnish.learner.objectives.anchor import Anchor
from burnish.learner.objectives.supervised import Supervised
from burnish.learner.run.work import StepResult, Work

if TYPE_CHECKING:
    from burnish.learner.run.trainer import Trainer

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


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier refit: the step, its good replies, and whether its version was refused."""

    step_id: int
    n_rows: int
    is_refused: bool


def is_due(n_new: int, earlier: Sequence[Earlier]) -> bool:
    """True if there are enough good replies since the last refit. `earlier` are the refits, the last first.

    One whose version was refused is tried once more at once. The anchors weigh more by then.
    """
    if not earlier:
        return n_new >= MIN_ROWS
    last, *before = earlier
    is_first_try = last.is_refused and not (before and before[0].is_refused)
    return is_first_try or n_new >= GROWTH * last.n_rows


def refit(trainer: "Trainer", work: Work) -> StepResult:
    """Refit the trainer's policy on the good replies of `work`, those of its own samples included.

    The optimiser's moments are cleared before and after. The result's metrics are `refit/n_rows`, and `refit/loss` in
    nats a token in the last pass. If there is no good reply, it is no update. Raises LearnerError if the refit
    diverges. The trainer is as before then.
    """
    started, state = time.perf_counter(), trainer.state()
    weights = trainer.policy.copy_adapter(), trainer.tensors()
    try:
        metrics = _learn(trainer, *_rows(trainer, work))
        if metrics and work.shrink < 1.0:
            trainer.policy.shrink(work.shrink)
    except BaseException as error:
        trainer.restore(state)
        trainer.policy.take_adapter(weights[0])
        trainer.restore_tensors(weights[1])
        if isinstance(error, LearnerError):
            raise LearnerError(f"starting again from the base failed: {error}") from error
        raise
    finally:
        trainer.optimizer.zero_grad(set_to_none=True)
    good = tuple(sample.interaction_id for sample in work.samples if good_replies.has_one(sample)) if metrics else ()
    others = tuple(sample.interaction_id for sample in work.samples if sample.interaction_id not in good)
    metrics = measured(work.samples) | metrics | {"seconds": time.perf_counter() - started}
    return StepResult(bool(good), good, others, metrics, reason=None if good else "no row had anything to teach")


def _learn(trainer: "Trainer", rows: Sequence[Row], anchors: Sequence[Row], factor: float) -> dict[str, float]:
    """Learn the rows from the base, beside anchors with `factor` on their weight. Returns metrics, none without
    rows."""
    if not rows:
        return {}
    trainer.policy.reset()
    trainer.optimizer.state.clear()
    for group in trainer.optimizer.param_groups:
        group["lr"] = trainer.recipe.learning_rate
    n_drawn, loss = 0, 0.0
    for _ in range(N_PASSES):
        order, loss = torch.randperm(len(rows), generator=trainer.generator).tolist(), 0.0
        for start in range(0, len(rows), BATCH):
            some = [rows[i] for i in order[start : start + BATCH]]
            drawn = [anchors[(n_drawn + i) % len(anchors)] for i in range(min(BATCH, len(anchors)))]
            n_drawn += len(drawn)
            found = trainer.descend([*some, *drawn], {Anchor.name: factor})
            loss += found[f"loss/{Supervised.name}"] * len(some) / len(rows)
    trainer.optimizer.state.clear()
    return {N_ROWS: float(len(rows)), "refit/loss": loss}


def _rows(trainer: "Trainer", work: Work) -> tuple[list[Row], list[Row], float]:
    """The good replies, weighed by the users behind them, and the anchors, both stamped. The factor on the anchors'
    weight."""
    good = [*good_replies.of_step(work.samples), *work.good]
    right = again(good[: trainer.recipe.refit_rows])
    anchors: Sequence[Row] = [Row(anchor.prompt_ids, anchor.completion_ids) for anchor in work.anchors]
    trainer.stamp([*right, *anchors])
    prepared = finish([], right, anchors, {}, {}, trainer.recipe)
    replies = [row for row in prepared.used if Supervised.stream in row.streams]
    factor = ANCHOR_FACTOR * work.weight_factors.get(Anchor.name, 1.0)
    return replies, [row for row in prepared.used if Anchor.stream in row.streams], factor
