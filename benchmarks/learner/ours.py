"""`python benchmarks/learner/ours.py FOLDER THREADS`: Burnish's own step (`Trainer.step`) on the folder's rows."""

import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from benchmarks.learner.meter import serve
from burnish.config import Recipe
from burnish.learner.data.rows import Row, TokenBatch
from burnish.learner.data.samples import Sample
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives import divergences
from burnish.learner.objectives.losses import clipped_policy_loss
from burnish.learner.objectives.objective import Objective, Term
from burnish.learner.objectives.registry import Weighted
from burnish.learner.run.trainer import Trainer


class Grpo(Objective):
    """TRL's loss as an objective: PPO's clip on given advantages plus β·k3 to the base, token mean over the step."""

    name: ClassVar[str] = "grpo"
    stream: ClassVar[str] = "advantages"

    def __init__(self, advantages: Mapping[str, float], beta: float, clip: float) -> None:
        self.advantages, self.beta, self.clip = advantages, beta, clip

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        for row, base in zip(rows, policy.logprobs(rows, Weights.BASE), strict=True):
            assert row.sample is not None
            row.streams["base"] = base
            row.streams["behaviour"] = torch.tensor(list(row.sample.behaviour_logprobs))
            row.streams["advantages"] = torch.full((row.n_tokens,), self.advantages[row.sample.interaction_id])
        return {}

    def term(self, batch: TokenBatch) -> Term:
        sampled = batch.sampled
        clip = {"clip_low": self.clip, "clip_high": self.clip}
        losses = clipped_policy_loss(sampled, batch.stream("behaviour"), batch.stream("advantages"), **clip).loss
        return Term((losses + self.beta * divergences.k3(sampled, batch.stream("base"))).sum(), len(sampled))


def main() -> None:
    """Load, then take a step for each line of stdin."""
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    given = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    settings, rows = given["settings"], given["rows"]
    policy = Policy.load(
        folder / "model", rank=settings["rank"], alpha=settings["alpha"], device="cpu", threads=threads
    )
    policy.load_adapter(folder / "adapter")
    trainer = trainer_of(policy, {str(i): row["advantage"] for i, row in enumerate(rows)}, settings)
    samples = [sample_of(str(i), row) for i, row in enumerate(rows)]
    for parameter in policy.model.parameters():
        parameter.detach().sum()  # read from disk now, not in the first step
    serve(lambda: trainer.step(samples).metrics["loss/grpo"])


def trainer_of(policy: Policy, advantages: Mapping[str, float], settings: Mapping[str, float]) -> Trainer:
    """Our trainer with TRL's loss and no more work than TRL's: one optimiser step, not scaled."""
    rates = {"learning_rate": settings["learning_rate"], "max_grad_norm": settings["max_grad_norm"]}
    trainer = Trainer(policy, Recipe(num_iterations=1, step_kl=0.0, monitors="watch", **rates))
    trainer.objectives = [Weighted(Grpo(advantages, settings["beta"], settings["clip"]), 1.0)]
    return trainer


def sample_of(name: str, row: Mapping[str, Any]) -> Sample:
    """A row as a judged turn with a usable ratio."""
    return Sample(
        interaction_id=name,
        version=0,
        prompt_ids=array("i", [int(i) for i in row["prompt_ids"]]),
        completion_ids=array("i", [int(i) for i in row["completion_ids"]]),
        behaviour_logprobs=array("f", row["behaviour"]),
        has_ratio=True,
        reward=1.0,
        reward_source="judge",
        record_ids=(),
        hint=None,
        hinted_prompt_ids=None,
        is_hint_lost=False,
        session=None,
        key_id="k",
        user=None,
    )


if __name__ == "__main__":
    main()
