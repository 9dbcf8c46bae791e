"""Trainer: one optimiser step at a time, blind to the methods that it sums up.

loss = Σ_terms weight · (sum of the term's token losses / the term's tokens in the whole step), accumulated over
micro-batches. Guarantees: the same state, rows and seed give the same bits (on a CPU); how rows are packed changes nothing
but rounding; a step that fails or finds nothing to learn leaves weights and optimiser untouched.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from burnish.config import Learner
from burnish.errors import LearnerError
from learner.control import shuffle_signals
from learner.objectives.registry import build
from learner.policy import Policy
from learner.ranks import Ranks
from learner.rows import Row, TokenBatch, Tokens, count
from learner.samples import Sample

BETAS = (0.9, 0.98)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did. `is_update` is False where no row had anything to teach: no version comes of it.

    `trained` and `idle` are interaction ids: rows that carried at least one term, and rows that carried none (advantage
    below 0.05 and no hint). `metrics` are flat floats: `loss/<objective>`, `<objective>/<metric>`, and the step's own. `refusals` are
    the codes of the hints that the teacher refused, by interaction id.
    """

    is_update: bool
    trained: tuple[str, ...]
    idle: tuple[str, ...]
    metrics: Mapping[str, float]
    refusals: Mapping[str, str] = field(default_factory=dict)


class Trainer:
    """AdamW on the policy's adapter (weight decay 0), with everything that must survive from step to step.

    `micro_tokens` bounds the tokens of one forward and backward pass. Several `ranks` take each step together: all are called with the
    same rows, and all end with the same weights.
    """

    def __init__(self, policy: Policy, settings: Learner, *, micro_tokens: int = 4096, ranks: Ranks | None = None) -> None:
        self.policy = policy
        self.settings = settings
        self.micro_tokens = micro_tokens
        self.ranks = ranks or Ranks()
        self.objectives = build(settings)
        self.generator = torch.Generator().manual_seed(settings.seed)
        parameters = list(policy.parameters().values())
        self.optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=BETAS, weight_decay=0.0)

    def step(self, samples: Sequence[Sample], anchors: Sequence[Tokens] = ()) -> StepResult:
        """Take one step on `samples` and `anchors`. Raises LearnerError where a loss or gradient is not finite."""
        started, before = time.perf_counter(), self.state()
        try:
            if self.settings.shuffle_rewards:
                samples = shuffle_signals(samples, self.generator)
            live = [Row.of(sample) for sample in samples]
            rows = live + [Row(anchor.prompt_ids, anchor.completion_ids, anchor.temperature) for anchor in anchors]
            metrics = self._stamp(rows)
            used = [row for row in rows if row.streams]
            trained = tuple(row.sample.interaction_id for row in used if row.sample is not None)
            if trained:
                metrics |= self._accumulate(used)
                metrics["grad_norm"] = self._clip()
                self.optimizer.step()
        except BaseException:
            self.restore(before)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        idle = tuple(row.sample.interaction_id for row in live if row.sample is not None and not row.streams)
        metrics |= _facts(samples) | {
            "n_trained": float(len(trained)),
            "n_idle": float(len(idle)),
            "n_tokens": float(sum(row.n_tokens for row in used)),
            "seconds": time.perf_counter() - started,
        }
        refusals = {name: code for objective, _ in self.objectives for name, code in objective.refusals.items()}
        return StepResult(bool(trained), trained, idle, metrics, refusals)

    def state(self) -> dict[str, Any]:
        """RNG and objectives' states as JSON values; tensors are in `tensors`."""
        return {
            "rng": bytes(self.generator.get_state().tolist()).hex(),
            "objectives": {objective.name: objective.state() for objective, _ in self.objectives},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a `state`; an objective that it does not know starts afresh."""
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state["rng"])), dtype=torch.uint8))
        for objective, _ in self.objectives:
            if objective.name in state["objectives"]:
                objective.restore(state["objectives"][objective.name])

    def reset(self) -> None:
        """Begin anew from the base: fresh adapter, no moments, no baselines, the seed's random numbers."""
        self.policy.reset()
        self.optimizer.state.clear()
        self.objectives = build(self.settings)
        self.generator.manual_seed(self.settings.seed)

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as `<parameter>.<moment>` on the CPU; empty before the first step."""
        return {
            f"{name}.{moment}": value.detach().to("cpu", copy=True).contiguous()
            for name, parameter in self.policy.parameters().items()
            for moment, value in self.optimizer.state.get(parameter, {}).items()
        }

    def restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the optimiser's `tensors`; an empty mapping forgets all moments."""
        self.optimizer.state.clear()
        for name, parameter in self.policy.parameters().items():
            moments = {key.removeprefix(name + "."): value for key, value in tensors.items() if key.startswith(name + ".")}
            if moments:
                # `step` stays on the CPU, as AdamW itself keeps it
                self.optimizer.state[parameter] = {
                    key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
                    for key, value in moments.items()
                }

    def _stamp(self, rows: Sequence[Row]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for objective, _ in self.objectives:
            with self.policy.shared_among(self.ranks):
                facts = objective.stamp(rows, self.policy)
            metrics |= {f"{objective.name}/{key}": value for key, value in facts.items()}
        return metrics

    def _accumulate(self, rows: Sequence[Row]) -> dict[str, float]:
        """Gradients of the whole step, micro-batch by micro-batch, and its means per token."""
        n_tokens = {objective.name: count(rows, objective.stream) for objective, _ in self.objectives}
        n_live = sum(row.n_tokens for row in rows if row.sample is not None)
        metrics: dict[str, float] = {"loss": 0.0}
        batches = self.policy.batches(rows, self.ranks.budget(rows, self.micro_tokens))
        for indices in self.ranks.share(batches, rows):
            micro = [rows[i] for i in indices]
            batch = TokenBatch(micro, self.policy.predictions(micro))
            loss = torch.zeros((), device=self.policy.device)
            for objective, weight in self.objectives:
                if not any(objective.stream in row.streams for row in batch.rows):
                    continue
                term, n = objective.term(batch), n_tokens[objective.name]
                loss = loss + weight * (term.total / n)
                for key, value in {"loss": term.total.item(), **term.sums}.items():
                    name = f"loss/{objective.name}" if key == "loss" else f"{objective.name}/{key}"
                    metrics[name] = metrics.get(name, 0.0) + value / n
            metrics["loss"] += loss.item()
            if not math.isfinite(metrics["loss"]):
                break  # the sum over ranks is not finite either: all give up together
            loss.backward()  # type: ignore[no-untyped-call]
            if n_live:
                metrics["entropy"] = metrics.get("entropy", 0.0) + _live_entropy(batch) / n_live
        metrics = self.ranks.add(metrics)
        if not math.isfinite(metrics["loss"]):
            raise LearnerError(f"the loss is {metrics['loss']}; the step is given up, the weights are as before")
        self.ranks.add_gradients(self.policy.parameters().values())
        return metrics

    def _clip(self) -> float:
        """Clip by global norm; the norm before it."""
        parameters = list(self.policy.parameters().values())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.settings.max_grad_norm))
        if not math.isfinite(norm):
            raise LearnerError(f"the gradient's norm is {norm}; the step is given up, the weights are as before")
        return norm


def _live_entropy(batch: TokenBatch) -> float:
    """Sum of the exact entropies (nats) at the live rows' tokens."""
    is_live = torch.cat([torch.full((row.n_tokens,), row.sample is not None) for row in batch.rows])
    return float(batch.entropy[is_live.to(batch.entropy.device)].sum())


def _facts(samples: Sequence[Sample]) -> dict[str, float]:
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    facts = {"n_rows": float(len(samples)), "n_hinted": float(sum(sample.hint is not None for sample in samples))}
    return facts | ({"reward_mean": sum(rewards) / len(rewards)} if rewards else {})
