"""The learner's process."""

from collections.abc import Callable
from pathlib import Path

import structlog

from adapters.store import AdapterStore
from burnish.config import Learner, Settings
from burnish.journal import Journal
from learner.anchors import Anchors
from learner.ledger import Ledger
from learner.loop import Loop
from learner.policy import Policy
from learner.retained import Retained
from learner.step import Trainer

log = structlog.get_logger()


def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """Train until `is_stopping()`."""
    chosen = settings.learner
    trainer = trainer_for(settings, chosen, settings.agent.name)
    policy = trainer.policy
    anchors = anchors_for(settings, policy, chosen)
    if anchors is not None:
        log.info("anchors are ready", n_anchors=len(anchors.texts))
    ledger = Ledger(Journal.open(settings.journal_url), settings.agent.name)
    retained = retained_for(settings, policy)
    loop = Loop(ledger, AdapterStore(settings.adapters_dir.resolve()), trainer, chosen, anchors, retained)
    log.info("learner ready", device=str(policy.device), targets=",".join(policy.targets))
    loop.run_forever(is_stopping)


def trainer_for(settings: Settings, chosen: Learner, agent: str) -> Trainer:
    """A trainer on the engine's base model, fresh, as `chosen` wants it, that finds the versions of `agent`."""
    policy = Policy.load(
        settings.engine.model,
        rank=chosen.rank,
        alpha=chosen.alpha,
        seed=chosen.seed,
        device=chosen.device,
        threads=chosen.threads,
        is_checkpointed=chosen.checkpointing,
    )
    trainer, store = Trainer(policy, chosen), AdapterStore(settings.adapters_dir.resolve())

    def adapter_of(version: int) -> Path | None:
        path = store.path(agent, version)
        return path if path.exists() else None

    trainer.adapters = adapter_of
    return trainer


def retained_for(settings: Settings, policy: Policy) -> Retained | None:
    """The base's answers to the gate's retention prompts; None where the gate has none."""
    if settings.retention_file is None:
        return None
    return Retained.load(settings.retention_file, settings.gate.n_retention, policy, settings.state_dir / "cache")


def anchors_for(settings: Settings, policy: Policy, chosen: Learner) -> Anchors | None:
    """The anchors that `chosen` wants; None where there are none."""
    if settings.anchors_file is None or not chosen.anchor_weight or not chosen.anchor_rows:
        return None
    return Anchors.load(settings.anchors_file, policy, settings.state_dir / "cache")
