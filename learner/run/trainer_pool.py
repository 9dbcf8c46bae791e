"""Trainer pool: trainers and their policies, shared by agents with equal settings. One base model serves as many agents
as it can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from burnish.config import Recipe, Settings
from burnish.errors import LearnerError
from burnish.learner.model.policy import Policy
from burnish.learner.run.trainer import Trainer

Which = tuple[str, int]
"""An agent and its version."""
Form = tuple[object, ...]
MOST_POLICIES = 4
"""Forms of the adapter at the same time. Each holds the whole base model once more."""


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
        self._policies: dict[Form, tuple[Policy, LoadedVersions]] = {}
        self._trainers: WeakValueDictionary[tuple[Form, Recipe], Trainer] = WeakValueDictionary()  # loops hold them

    def of(self, settings: Settings) -> tuple[Trainer, LoadedVersions]:
        """The trainer for an agent with these settings, and what its policy holds. Raises LearnerError if other agents
        hold as many forms of the adapter as one process can.
        """
        recipe, learner = settings.recipe, settings.learner
        form = (recipe.rank, recipe.lora_alpha, recipe.seed, learner.device, learner.threads, recipe.checkpointing)
        if form not in self._policies:
            self._make_room()
            self._policies[form] = (self._load(settings), LoadedVersions())
        policy, loaded = self._policies[form]
        plain = Recipe()
        key = (form, recipe.model_copy(update={name: getattr(plain, name) for name in _SCHEDULE_FIELDS}))
        trainer = self._trainers.get(key)
        if trainer is None:
            trainer = self._trainers[key] = Trainer(policy, recipe)
        return trainer, loaded

    def _make_room(self) -> None:
        """Give up a policy that no trainer uses, if there are too many."""
        if len(self._policies) < MOST_POLICIES:
            return
        used = {form for form, _ in self._trainers}
        idle = next((form for form in self._policies if form not in used), None)
        if idle is None:
            raise LearnerError(
                f"the agents here have {MOST_POLICIES} forms of the adapter already; use the rank, alpha, seed and "
                "checkpointing of one of them"
            )
        del self._policies[idle]
