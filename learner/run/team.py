"""Several processes that train as one, under torchrun: the first is the learner, and the others follow its steps.

Only the first reads the journal, publishes, and follows the live version. Before a step it sends the others the step's
start (adapter, teacher, moments, random state) and its rows. All take the step together (learner/model/ranks.py). No
other state has to be synchronised, because the start overwrites whatever a follower held before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from burnish.config import Settings
from burnish.learner.model.ranks import Ranks
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.work import Work

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Order:
    """One step: its settings, its starting weights and its rows. `adapters` are the directories of the rows' own
    versions.
    """

    settings: Settings
    adapter: dict[str, Any]
    teacher: dict[str, Any] | None
    moments: dict[str, Any]
    state: dict[str, Any]
    adapters: dict[int, Path | None] | None
    work: Work


def lead(trainer: Trainer, ranks: Ranks, settings: Settings) -> None:
    """Make the other ranks take each step of `trainer` too."""
    trainer.ranks = ranks

    def send_order(work: Work) -> None:
        find = trainer.adapters
        directories = (
            {v: find(v) for v in {sample.version for sample in work.samples} if v} if find is not None else None
        )
        policy = trainer.policy
        ranks.send(
            Order(
                settings,
                policy.copy_adapter(),
                policy.copy_teacher(),
                trainer.tensors(),
                trainer.state(),
                directories,
                work,
            )
        )

    trainer.before_step = send_order


def follow(ranks: Ranks, trainer_of: Callable[[Settings], Trainer]) -> None:
    """Take every step that the first rank takes, until it ends."""
    while (order := ranks.receive()) is not None:
        trainer = trainer_of(order.settings)
        trainer.ranks = ranks
        trainer.policy.take_adapter(order.adapter)
        trainer.policy.take_teacher(order.teacher)
        trainer.restore_tensors(order.moments)
        trainer.restore(order.state)
        trainer.adapters = None if order.adapters is None else order.adapters.get
        trainer.take(order.work)
    log.info("the learner has ended", rank=ranks.rank)
