"""Trainer pool: trainers and their policies, shared by agents with equal settings. One base model serves as many agents
as it can.
"""

from collections.abc import Callable
from dataclasses import dataclass

from burnish.config import Recipe, Settings
from burnish.learner.model.policy import Policy
from burnish.learner.run.trainer import Trainer

Which = tuple[str, int]
"""An agent and its version."""


@dataclass
class LoadedVersions:
    """`current` is the version in the adapter being trained (None: no version). `teacher` is the teacher's version."""

    current: Which | None = None
    teacher: Which | None = None


_SCHEDULE_FIELDS = (
    "min_rows",
    "max_rows",
    "max_wait",
    "max_off_policy_steps",
    "anchor_rows",
    "max_groups",
    "group_size",
    "group_max_tokens",
    "group_max_others",
)
"""Recipe fields that decide when a step is taken and on what. Agents that differ only in these share a trainer."""


class TrainerPool:
    """`load` makes a policy for settings. It is called once for each form of the adapter."""

    def __init__(self, load: Callable[[Settings], Policy]) -> None:
        self._load = load
        self._policies: dict[tuple[object, ...], tuple[Policy, LoadedVersions]] = {}
        self._trainers: dict[tuple[int, Recipe], Trainer] = {}

    def of(self, settings: Settings) -> tuple[Trainer, LoadedVersions]:
        """The trainer for an agent with these settings, and what its policy holds."""
        recipe, learner = settings.recipe, settings.learner
        form = (recipe.rank, recipe.lora_alpha, recipe.seed, learner.device, learner.threads, recipe.checkpointing)
        if form not in self._policies:
            self._policies[form] = (self._load(settings), LoadedVersions())
        policy, loaded = self._policies[form]
        plain = Recipe()
        key = (id(policy), recipe.model_copy(update={name: getattr(plain, name) for name in _SCHEDULE_FIELDS}))
        if key not in self._trainers:
            self._trainers[key] = Trainer(policy, recipe)
        return self._trainers[key], loaded
