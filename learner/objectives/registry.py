"""The objectives by name, each with its weight in the recipe and its constructor. A new method adds one entry.

Order matters: rows are stamped in it, and `kl_to_base` covers what the others before it train. An objective of weight 0
is not built: it costs no forward pass and changes no bit.
"""

from collections.abc import Callable
from typing import NamedTuple

from burnish.config import Recipe
from burnish.learner.model.policy import Weights
from burnish.learner.objectives.anchor import Anchor
from burnish.learner.objectives.distillation import Distillation, TokenDistillation
from burnish.learner.objectives.group_gradient import GroupGradient
from burnish.learner.objectives.kl_to_base import KlToBase
from burnish.learner.objectives.objective import Objective
from burnish.learner.objectives.policy_gradient import PolicyGradient
from burnish.learner.objectives.preference import Preference
from burnish.learner.objectives.supervised import Supervised


class Weighted(NamedTuple):
    """An objective and the weight of its term."""

    objective: Objective
    weight: float


class _Entry(NamedTuple):
    weight: Callable[[Recipe], float]
    build: Callable[[Recipe], Objective]


_DISTILL_FORMS: dict[str, type[Distillation]] = {"top_k": Distillation, "token": TokenDistillation}

REGISTRY: dict[str, _Entry] = {
    PolicyGradient.name: _Entry(
        lambda s: s.rl_weight,
        lambda s: PolicyGradient(
            clip_low=s.clip_low,
            clip_high=s.clip_high,
            dual_clip=s.dual_clip,
            baseline_decay=s.baseline_decay,
            scale_floor=s.scale_floor,
            min_advantage=s.min_advantage,
            advantage=s.advantage,
            groups=s.groups,
            is_decoupled=s.correction == "token_tis",
            form=s.policy_loss,
        ),
    ),
    GroupGradient.name: _Entry(
        lambda s: s.group_weight,
        lambda s: GroupGradient(
            clip_low=s.clip_low, clip_high=s.clip_high, dual_clip=s.dual_clip, advantage=s.group_advantage
        ),
    ),
    Distillation.name: _Entry(
        lambda s: s.distill_weight,
        lambda s: _DISTILL_FORMS[s.distill_form](
            top_k=s.distill_top_k,
            check_hints=s.check_hints,
            teacher=Weights.BASE if s.distill_teacher == "base" else Weights.TEACHER,
        ),
    ),
    Supervised.name: _Entry(lambda s: s.sft_weight, lambda s: Supervised()),
    Preference.name: _Entry(
        lambda s: s.dpo_weight, lambda s: Preference(beta=s.dpo_beta, reference=Weights(s.dpo_reference))
    ),
    KlToBase.name: _Entry(lambda s: s.kl_weight, lambda s: KlToBase()),
    Anchor.name: _Entry(lambda s: s.anchor_weight, lambda s: Anchor()),
}

OF_LIVE_REPLIES = (PolicyGradient.name, Distillation.name, Supervised.name, Preference.name)
"""The objectives that learn from what people said of live replies."""


def build(recipe: Recipe) -> list[Weighted]:
    """The objectives with a weight in `recipe`, in the order of stamping."""
    entries = [(entry, entry.weight(recipe)) for entry in REGISTRY.values()]
    return [Weighted(entry.build(recipe), weight) for entry, weight in entries if weight > 0]
