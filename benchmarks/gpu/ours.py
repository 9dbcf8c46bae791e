"""Our side: `Trainer.step` on the rows, once with TRL's loss as the other sides take it, once with the whole recipe.

With TRL's loss: one scoring pass under the base, one pass with gradient, one optimiser step. The whole recipe is the
one that ships, with hints and a step of a target length. Its monitors only watch, because the rows are random.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import rows as agents
from benchmarks.gpu import shapes, timing
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import Figures
from benchmarks.learner.ours import sample_of, trainer_of
from benchmarks.learner.rows import SETTINGS
from burnish.config import Recipe
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import Sample
from burnish.learner.model.policy import Policy
from burnish.learner.run.trainer import Trainer

LARGER = (2, 4)
"""Micro-batches that are tried beside the shipped one, as its multiples."""


class Counter:
    """Sums up the FLOPs of every pass through a model. `flops` is NaN after a pass with padding."""

    def __init__(self, base: Any, shape: Shape) -> None:
        self._shape = shape
        self.flops = 0.0
        base.get_decoder().register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: Any, args: Any, given: Mapping[str, Any]) -> None:
        layout = given.get("packed")
        if layout is None:
            self.flops = float("nan")
            return
        n_pairs = 0
        for segment in layout.segments:
            n, n_seen = segment.end - segment.start, len(segment.path)
            n_pairs += n * (n_seen - n) + n * (n + 1) // 2
        sizes = (len(layout.ids), len(layout.targets), n_pairs)
        self.flops += self._shape.flops(*sizes, with_gradient=torch.is_grad_enabled())


def policy_of(base: Any, device: str) -> Policy:
    """Our policy around a base that was never on a disk. It has no tokenizer."""
    model, lora = shapes.adapted(base)
    return Policy(model, None, lora, Path("random"), score_tokens=1024 if device == "cpu" else 8192)


def texts(rows: Sequence[Mapping[str, Any]]) -> list[Text]:
    """The rows as what a policy scores."""
    return [Text(row["prompt_ids"], row["completion_ids"]) for row in rows]


def measure(shape: Shape, device: str) -> Figures:
    """Figures at the shipped micro-batch, of larger ones, and `recipe_…` of the whole recipe."""
    base = shapes.build(shape, device)
    policy, counter = policy_of(base, device), Counter(base, shape)
    rows = agents.agent_rows(shape)
    found: Figures = dict(agents.facts(rows))
    n_tokens = float(found["n_row_tokens"])
    for row, behaviour in zip(rows, policy.logprobs(texts(rows)), strict=True):
        row["behaviour"] = behaviour.tolist()
    samples = [_sample(str(i), row) for i, row in enumerate(rows)]
    advantages = {sample.interaction_id: row["advantage"] for sample, row in zip(samples, rows, strict=True)}
    trainer = trainer_of(policy, advantages, SETTINGS)
    norms: list[float] = []

    def take(micro: int, with_trainer: Trainer = trainer) -> float:
        with_trainer.micro_tokens, counter.flops = micro, 0.0
        result = with_trainer.step(samples)
        if not result.is_update:
            raise RuntimeError(f"expected a step, got none: {result.reason}")
        norms.append(result.metrics["grad_norm"])
        return counter.flops

    sizes = [trainer.micro_tokens, *(factor * trainer.micro_tokens for factor in LARGER)]
    steps = timing.sweep(take, sizes, device)
    if not steps:
        return found | {"out_of_memory": 1.0}
    found |= timing.figures(steps[sizes[0]], n_tokens, device) | timing.sizes_tried(steps, sizes)
    found |= {"micro_tokens": float(sizes[0]), "first_grad_norm": norms[0]}

    policy.reset()
    whole = Trainer(policy, Recipe(monitors="watch"))
    steps = timing.sweep(lambda micro: take(micro, whole), sizes[:1], device)
    if not steps:
        return found | {"recipe_out_of_memory": 1.0}
    made = timing.figures(steps[sizes[0]], n_tokens, device)
    return found | {f"recipe_{name}": value for name, value in made.items()}


def _sample(name: str, row: Mapping[str, Any]) -> Sample:
    """The row as a turn of a user who has one session."""
    made = replace(sample_of(name, row), reward=row["reward"], session=row["session"], user=row["session"])
    if row["hinted_prompt_ids"] is None:
        return made
    hinted, control = (array("i", row[key]) for key in ("hinted_prompt_ids", "control_prompt_ids"))
    return replace(made, hint="a hint", hinted_prompt_ids=hinted, control_prompt_ids=control)
