"""The learner's process."""

from collections.abc import Callable

import structlog

from adapters.store import AdapterStore
from burnish.config import Settings
from burnish.journal import Journal
from learner.anchors import Anchors
from learner.ledger import Ledger
from learner.loop import Loop
from learner.policy import Policy
from learner.step import Trainer

log = structlog.get_logger()


def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """Train until `is_stopping()`."""
    chosen = settings.learner
    policy = Policy.load(
        settings.engine.model,
        rank=chosen.rank,
        alpha=chosen.alpha,
        seed=chosen.seed,
        device=chosen.device,
        threads=chosen.threads,
        is_checkpointed=chosen.checkpointing,
    )
    anchors = None
    if settings.anchors_file is not None and chosen.anchor_weight and chosen.anchor_rows:
        anchors = Anchors.load(settings.anchors_file, policy, settings.state_dir / "cache")
        log.info("anchors are ready", n_anchors=len(anchors.texts))
    trainer = Trainer(policy, chosen)
    ledger = Ledger(Journal.open(settings.journal_url), settings.agent.name)
    loop = Loop(ledger, AdapterStore(settings.adapters_dir.resolve()), trainer, chosen, anchors)
    log.info("learner ready", device=str(policy.device), targets=",".join(policy.targets))
    loop.run_forever(is_stopping)
