"""The learner's process."""

import time
from collections.abc import Callable
from pathlib import Path

import structlog
import torch

from burnish.adapters.evidence.gate import N_FORGETTING_PROMPTS
from burnish.adapters.files.binding import bind
from burnish.adapters.files.store import AdapterStore
from burnish.config import ABILITIES, Recipe, Settings
from burnish.config.machine import dtype, n_threads
from burnish.journal import Journal
from burnish.keys import engine_key
from burnish.learner.data.anchors import Anchors
from burnish.learner.data.shadow_groups import Grader, GroupLedger
from burnish.learner.data.teacher_prompts import learns_right_replies, reply_ends
from burnish.learner.grading.hint_grader import HintGrader
from burnish.learner.model.policy import Policy
from burnish.learner.model.ranks import Ranks
from burnish.learner.run.ledger import Ledger
from burnish.learner.run.loop import Loop
from burnish.learner.run.scheduler import Scheduler
from burnish.learner.run.team import follow, lead
from burnish.learner.run.throttle import Throttle, WorkShare, token_gaps
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.trainer_pool import TrainerPool
from burnish.learner.safety.kept_answers import KeptAnswers

log = structlog.get_logger()
GPU_LATENCY_RATIO = 1.25
GPU_MEMORY = 0.95
"""Share of a GPU's memory for the learner and an engine on the same GPU. The rest is for the driver."""
ENGINE_PAUSE = 1.0
"""Seconds between two looks at an engine that starts."""


def run(settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """Train until `is_stopping()`. Raises AdapterError if the journal does not belong to the adapter store, or is older
    than it.
    """
    ranks = Ranks.from_environment(_device(settings.learner.device))
    journal = Journal.open(settings.journal_url)
    trainers = TrainerPool(lambda chosen: policy_for(chosen, chosen.recipe))
    if ranks.rank:
        return follow(ranks, lambda chosen: trainers.of(chosen)[0])
    bind(journal, AdapterStore(settings.adapters_dir.resolve()))
    key = engine_key(settings)
    with Throttle(WorkShare(_latency_limit(settings)), lambda: token_gaps(settings.engine_urls, key)) as throttle:

        def loop_of(chosen: Settings, agent: str) -> Loop:
            recipe = chosen.recipe
            trainer, loaded = trainers.of(chosen)
            lead(trainer, ranks, chosen)
            trainer.policy.rest = throttle.rest
            trainer.adapters = lambda _: (
                None
            )  # rows are audited; the loop that takes the trainer sets where its versions are
            anchors = anchors_for(chosen, trainer.policy, recipe)
            kept_answers = kept_answers_for(chosen, trainer.policy)
            store = AdapterStore(chosen.adapters_dir.resolve())
            n_anchors = len(anchors.texts) if anchors else 0
            log.info("training", agent=agent, device=str(trainer.policy.device), n_anchors=n_anchors)
            if not learns_right_replies(trainer.policy.tokenizer):
                log.warning(
                    "right replies and corrections cannot be learned: the chat template ends a reply with none of the "
                    "model's end tokens; name that token in eos_token_id of its generation_config.json",
                    ends=sorted(reply_ends(trainer.policy.tokenizer)),
                )
            groups = None
            if chosen.has_groups:
                grader = chosen.groups.grader
                scorer = _grader(grader, journal, agent, trainer.policy)
                groups = GroupLedger(journal, agent, scorer, is_awaited=grader == "ratings")
            return Loop(
                Ledger(journal, agent, chosen.learner.hint_quorum),
                store,
                trainer,
                recipe,
                anchors,
                kept_answers,
                loaded,
                throttle,
                chosen.holdout,
                groups,
            )

        scheduler = Scheduler(settings, journal, loop_of)
        await_engine(settings, key, is_stopping)
        scheduler.run_once(lambda: True)  # the base model is loaded now, not when the first rows are ready
        log.info("learner ready")
        scheduler.run_forever(is_stopping)
    ranks.send(None)


def await_engine(settings: Settings, key: str, is_stopping: Callable[[], bool]) -> None:
    """Wait for an engine that starts on the same GPU.

    vLLM measures at its start how much of the GPU is free. If another process takes memory meanwhile, it counts that as
    its own and may find none left for its cache.
    """
    if settings.engine.urls or _device(settings.learner.device) == "cpu":
        return
    if token_gaps(settings.engine_urls, key) is None:
        log.info("waiting for the engine, which measures the GPU's memory while it starts")
    while token_gaps(settings.engine_urls, key) is None and not is_stopping():
        time.sleep(ENGINE_PAUSE)


def _latency_limit(settings: Settings) -> float:
    """The most that serving may slow down. The lowest priority protects it on a CPU, and shares nothing on a GPU."""
    given = settings.learner.max_latency_ratio
    if given is not None:
        return given
    return 0.0 if _device(settings.learner.device) == "cpu" else GPU_LATENCY_RATIO


def _device(device: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def trainer_for(settings: Settings, recipe: Recipe, agent: str) -> Trainer:
    """A fresh trainer on the engine's base model, built by `recipe`, that finds the versions of `agent`."""
    policy = policy_for(settings, recipe)
    trainer, store = Trainer(policy, recipe), AdapterStore(settings.adapters_dir.resolve())

    def adapter_of(version: int) -> Path | None:
        path = store.path(agent, version)
        return path if path.exists() else None

    trainer.adapters = adapter_of
    return trainer


def policy_for(settings: Settings, recipe: Recipe) -> Policy:
    """The engine's base model with a fresh adapter built by `recipe`."""
    share = 0.0 if settings.engine.urls else GPU_MEMORY - settings.engine.gpu_memory
    return Policy.load(
        settings.engine.model,
        rank=recipe.rank,
        alpha=recipe.lora_alpha,
        seed=recipe.seed,
        device=settings.learner.device,
        threads=settings.learner.threads or n_threads(settings.engine.model),
        is_checkpointed=recipe.checkpointing,
        gpu_share=share,
        is_bfloat16=dtype(settings.engine.dtype, settings.engine.model) == "bfloat16",
    )


def kept_answers_for(settings: Settings, policy: Policy) -> KeptAnswers | None:
    """The base's answers to the gate's forgetting prompts. None for the general ones: a real model's style changes
    nearly every answer, so there is next to nothing to spare the gate (docs/decisions/0026-gate-without-traffic.md).
    """
    if settings.forgetting_file == ABILITIES:
        return None
    return KeptAnswers.load(settings.forgetting_file, N_FORGETTING_PROMPTS, policy, settings.state_dir / "cache")


def anchors_for(settings: Settings, policy: Policy, recipe: Recipe) -> Anchors | None:
    """The anchors that `recipe` asks for. None if there are none."""
    if not recipe.anchor_weight or not recipe.anchor_rows:
        return None
    return Anchors.load(settings.anchors_file, policy, settings.state_dir / "cache")


def _grader(name: str, journal: Journal, agent: str, policy: Policy) -> Grader | None:
    """The grader of shadow groups by its setting. None if it does not work in the learner."""
    if name == "likelihood":
        return HintGrader(journal, agent, policy)
    if name == "ratings":
        from burnish.learner.grading.rating_grader import RatingGrader  # scikit-learn takes a second to import

        return RatingGrader(journal, agent, policy)
    return None
