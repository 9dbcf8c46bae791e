"""Trainer: one optimiser step at a time, independent of the methods that it sums up.

loss = Σ_terms weight · (sum of the term's token losses / the term's tokens in the whole step), accumulated over
micro-batches. `num_iterations` optimiser steps are taken on it. Guarantees: the same state, rows and seed give the same
bits (on a CPU). Packing of rows changes nothing but rounding. A step that fails, is an outlier, or finds nothing to
learn leaves weights and optimiser untouched. A row that cannot be trained is dropped with its reason, and the step
continues without it.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from burnish.config import Recipe
from burnish.errors import LearnerError
from burnish.learner.data import examples, good_replies
from burnish.learner.data.batch import Prepared, finish, measured
from burnish.learner.data.filters import admit
from burnish.learner.data.good_replies import GoodReply
from burnish.learner.data.right_replies import again, right_replies
from burnish.learner.data.rows import Row, TokenBatch, Tokens, count
from burnish.learner.data.samples import Sample
from burnish.learner.data.shadow_groups import Group
from burnish.learner.data.shuffled_control import ShuffledSignals
from burnish.learner.model.policy import Policy
from burnish.learner.model.ranks import Ranks
from burnish.learner.objectives.distillation import Distillation
from burnish.learner.objectives.off_policy import Adapters, Audit, audit
from burnish.learner.objectives.registry import build
from burnish.learner.run.work import StepResult, Work
from burnish.learner.safety import hint_validation
from burnish.learner.safety.hint_validation import LikedReply
from burnish.learner.safety.monitor_state import MonitorState
from burnish.learner.safety.monitors import Level, Reading, worst
from burnish.learner.step.influence import Gradients
from burnish.learner.step.length import GROUPS_SHARE, StepLength, signal

BETAS = (0.9, 0.98)
MAX_PACE = 1e4
"""Bound on the factor between the recipe's learning rate and the one that meets the target KL."""
_LAST_PASS_METRICS = ("loss", "policy_gradient/ratio", "policy_gradient/clip_fraction")
"""Metrics of the last of several passes that are reported beside the first one's: how far the policy moved."""


class NotFinite(LearnerError):
    """A loss or a gradient is not a number."""


class Trainer:
    """AdamW on the policy's adapter (weight decay 0), with everything that must survive from step to step.

    Several `ranks` take each step together: all are called with the same rows, and all end with the same weights.
    `adapters` finds the directories of earlier versions. Without it no row is audited. `policy.rest` is called between
    micro-batches and between batches that are scored, with the seconds that the last one took. `before_step` is called
    with the step's Work.
    """

    def __init__(self, policy: Policy, recipe: Recipe, *, ranks: Ranks | None = None) -> None:
        self.policy = policy
        self.recipe = recipe
        self.micro_tokens = recipe.micro_tokens or (512 if policy.device.type == "cpu" else 4096)
        self.ranks = ranks or Ranks()
        self.adapters: Adapters | None = None
        self.before_step: Callable[[Work], None] = _no_other_ranks
        self.objectives = build(recipe)
        self.monitor_state = MonitorState(recipe)
        self.control = ShuffledSignals()
        self.pace = 1.0
        self.generator = torch.Generator().manual_seed(recipe.seed)
        parameters = list(policy.parameters().values())
        self.optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, betas=BETAS, weight_decay=0.0)

    def step(
        self,
        samples: Sequence[Sample],
        anchors: Sequence[Tokens] = (),
        groups: Sequence[Group] = (),
        weight_factors: Mapping[str, float] = MappingProxyType({}),
        *,
        has_momentum: bool = True,
        rate: float = 1.0,
        liked_replies: Sequence[LikedReply] = (),
        shrink: float = 1.0,
        good: Sequence[GoodReply] = (),
    ) -> StepResult:
        """Take one step on `samples`, `anchors` and shadow `groups`. If it must not be taken, the result's `reason`
        says why.

        `weight_factors` multiplies the weights of the objectives that it names, in this step. By a factor of 0 an
        objective is left out: it looks at no row. Without momentum the step
        follows this step's gradient alone, and is a tenth as long (1 − β₁). `rate` multiplies the learning rate.
        `liked_replies` are replies that other users praised. They validate the samples' hints
        (`learner/safety/hint_validation.py`). `shrink` multiplies the adapter at the end. `good` are good replies
        of earlier steps (`learner/data/good_replies.py`).
        """
        return self.take(
            Work(samples, anchors, groups, weight_factors, has_momentum, rate, liked_replies, shrink, good)
        )

    def take(self, work: Work) -> StepResult:
        """`step`, with all arguments as one value."""
        started, before = time.perf_counter(), self.state()
        weights = self._weights()
        self.before_step(work)
        samples, groups = work.samples, work.groups
        readings: dict[str, Reading] = {}
        reason: str | None = None
        length: StepLength | None = None
        changes: Mapping[str, float] = {}
        try:
            if self.recipe.shuffle_rewards:
                samples = self.control.shuffle(samples, self.generator)
                groups = [group.shuffled(self.generator) for group in groups]
            batch = self._prepare(replace(work, samples=samples, groups=groups))
            metrics = batch.facts
            if batch.has_work:
                hinted = work.weight_factors.get(Distillation.name, 1.0) * batch.hint_share
                weight_factors = {**work.weight_factors, Distillation.name: hinted}
                if self.recipe.step_kl and any(row.is_own for row in batch.used):
                    length = StepLength(self.policy, self.ranks)
                metrics |= self._accumulate(batch.used, weight_factors, length, batch.heaviest)
                readings = self._check(metrics, self._clip())
                reason = self._objection(metrics, readings, work.rate)
            else:
                reason = "no row had anything to teach"
            if reason is None:
                if not work.has_momentum:
                    for moments in self.optimizer.state.values():
                        moments["exp_avg"].zero_()  # the second moments and the count of steps stay
                self.optimizer.step()
                metrics |= self._further(batch.used, weight_factors)
                if length is not None:
                    share = signal(batch.used) * (GROUPS_SHARE if not batch.trained else 1.0)
                    metrics |= self._fit(length, share, metrics["rate"])
                    changes = length.changes()
                if work.shrink < 1.0:
                    self.policy.shrink(work.shrink)
        except NotFinite as error:
            reason = str(error)
            readings = self._check(metrics, math.inf)
            self._undo(weights)
        except BaseException:
            self.restore(before)
            self._undo(weights)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        if batch.has_work and reason is not None:
            self.restore(
                {**before, "health": self.monitor_state.state()}
            )  # keep the memory of what was measured, and undo the update
        asked = [each for each, _ in self.objectives if work.weight_factors.get(each.name) != 0.0]
        refusals = {name: code for objective in asked for name, code in objective.refusals.items()}
        refusals |= batch.disputed
        return StepResult(
            reason is None,
            batch.trained if reason is None else (),
            batch.idle,
            metrics | {"seconds": time.perf_counter() - started},
            refusals,
            batch.dropped,
            batch.weights,
            {name: reading.to_json() for name, reading in readings.items()},
            worst(readings).name.lower(),
            reason,
            {name: hint for objective in asked for name, hint in objective.chosen.items()},
            batch.grouped if reason is None else (),
            batch.ungrouped,
            batch.group_weights,
            changes if reason is None else {},
        )

    def state(self) -> dict[str, Any]:
        """RNG and objectives' states as JSON values. The tensors are in `tensors`."""
        return {
            "rng": bytes(self.generator.get_state().tolist()).hex(),
            "objectives": {objective.name: objective.state() for objective, _ in self.objectives},
            "health": self.monitor_state.state(),
            "pace": self.pace,
        } | ({"control": self.control.state()} if self.recipe.shuffle_rewards else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. An objective that the state does not hold starts afresh."""
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state["rng"])), dtype=torch.uint8))
        for objective, _ in self.objectives:
            if objective.name in state["objectives"]:
                objective.restore(state["objectives"][objective.name])
        self.monitor_state.restore(state.get("health", {}))
        self.pace = float(state.get("pace", 1.0))
        self.control.restore(state.get("control", []))

    def reset(self) -> None:
        """Restart from the base: fresh adapter, no moments, no baselines, the seed's random numbers."""
        self.policy.reset()
        self.optimizer.state.clear()
        self.objectives = build(self.recipe)
        self.monitor_state = MonitorState(self.recipe)
        self.control = ShuffledSignals()
        self.pace = 1.0
        self.generator.manual_seed(self.recipe.seed)

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as `<parameter>.<moment>` on the CPU. Empty before the first step."""
        return {
            f"{name}.{moment}": value.detach().to("cpu", copy=True).contiguous()
            for name, parameter in self.policy.parameters().items()
            for moment, value in self.optimizer.state.get(parameter, {}).items()
        }

    def restore_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the optimiser's `tensors`. An empty mapping clears all moments."""
        self.optimizer.state.clear()
        for name, parameter in self.policy.parameters().items():
            moments = {
                key.removeprefix(name + "."): value for key, value in tensors.items() if key.startswith(name + ".")
            }
            if moments:
                # `step` stays on the CPU, as AdamW itself keeps it
                self.optimizer.state[parameter] = {
                    key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
                    for key, value in moments.items()
                }

    def _prepare(self, work: Work) -> Prepared:
        """Admit rows, audit them, validate their hints, stamp them, and weigh the rows that carry a term."""
        recipe, samples = self.recipe, work.samples
        admitted, dropped = admit(samples, self.policy.model.config.vocab_size, keep_duplicates=recipe.keep_duplicates)
        facts = measured(samples)
        found = Audit({}, {}, {})
        if self.adapters is not None:
            n_rows = len(admitted) if recipe.correction == "token_tis" else recipe.audit_rows
            with self.policy.shared_among(self.ranks):
                found = audit(admitted, self.policy, self.adapters, n_rows=n_rows, band=recipe.max_mismatch)
            facts |= {f"offpolicy/{name}": value for name, value in found.facts.items()}
        admitted = [sample for sample in admitted if sample.interaction_id not in found.dropped]
        left_out = {name for name, factor in work.weight_factors.items() if factor == 0.0}
        with self.policy.shared_among(self.ranks):
            validated = hint_validation.validate_hints(
                admitted, work.liked_replies, self.policy, recipe.n_liked_replies
            )
        # earlier rewards are the true ones, which the shuffled control must not see
        earlier: Sequence[GoodReply] = () if recipe.shuffle_rewards else work.good
        has_examples = recipe.distill_weight and good_replies.do_some_please(samples)
        good = [*good_replies.of_step(samples), *earlier]
        chosen = examples.select(good, recipe.n_examples) if has_examples else []
        admitted = examples.shown(validated.samples, chosen, self.policy.tokenizer)
        facts |= {"n_examples": float(len(chosen))}
        facts |= validated.facts
        learned_again = again(earlier[: recipe.replay_rows]) if recipe.sft_weight else []
        live, right = [Row.of(sample) for sample in admitted], [*right_replies(admitted), *learned_again]
        replayed = [Row(anchor.prompt_ids, anchor.completion_ids) for anchor in work.anchors]
        members = [(group, group.rows()) for group in work.groups]
        facts |= self._stamp([*live, *right, *(row for _, each in members for row in each), *replayed], left_out)
        for row in live:
            if row.sample is not None and "own" in row.streams and row.sample.interaction_id in found.own:
                row.streams["own"] = found.own[row.sample.interaction_id]
        prepared = finish(live, right, replayed, {**dropped, **found.dropped}, facts, recipe, members)
        return replace(prepared, disputed=validated.refused, hint_share=validated.share)

    def _further(self, rows: Sequence[Row], weight_factors: Mapping[str, float]) -> dict[str, float]:
        """The passes after the first: the same rows and streams, with the policy as it is by then. Each term's own
        bounds (clip, caps, trust regions) hold them near the behaviour policy.
        """
        metrics: dict[str, float] = {}
        for _ in range(1, self.recipe.num_iterations):
            self.optimizer.zero_grad(set_to_none=True)
            found = self._accumulate(rows, weight_factors)
            self._clip()
            self.optimizer.step()
            metrics = {f"last/{name}": found[name] for name in _LAST_PASS_METRICS if name in found}
        return metrics

    def _weights(self) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
        """The state to restore if something after the first optimiser step fails. None if nothing follows it."""
        is_final = self.recipe.num_iterations == 1 and not self.recipe.step_kl
        return None if is_final else (self.policy.copy_adapter(), self.tensors())

    def _fit(self, length: StepLength, share: float, factor: float) -> dict[str, float]:
        """Bring the step to its target KL: the `share` of `step_kl` that its rows teach, times the square of `factor`.
        It is never shorter than can be measured.

        The next step's learning rate follows the scale, so that there is little left to scale.
        """
        target = length.reachable(self.recipe.step_kl * share * factor**2)
        scale, found = length.fit(target)
        self.pace = min(MAX_PACE, max(1.0 / MAX_PACE, self.pace * scale))
        return {"step_kl": found, "step_kl_target": target, "step_scale": scale, "signal": share}

    def _undo(self, weights: tuple[dict[str, Tensor], dict[str, Tensor]] | None) -> None:
        if weights is not None:
            self.policy.take_adapter(weights[0])
            self.restore_tensors(weights[1])

    def _check(self, metrics: dict[str, float], norm: float) -> dict[str, Reading]:
        """Add the gradient's norm and z-score to `metrics`, and update the monitors with the step."""
        score = self.monitor_state.z_score(norm)
        measured = metrics | {"grad_norm": norm} | ({"grad_z": score} if score is not None else {})
        metrics |= {name: value for name, value in measured.items() if math.isfinite(value)}
        return self.monitor_state.observe(measured)

    def _objection(self, metrics: dict[str, float], readings: Mapping[str, Reading], factor: float) -> str | None:
        """The reason not to take this step, None if there is none. Sets the step's learning rate."""
        limit, score = self.recipe.outlier_z, metrics.get("grad_z", 0.0)
        if limit and score > limit:
            norm = metrics["grad_norm"]
            return f"an outlier: the gradient's norm {norm:.3g} is {score:.1f} deviations above the last steps'"
        is_acting, level = self.recipe.monitors == "act", worst(readings)
        if is_acting and level is Level.RED:
            return "; ".join(f"{name} is red: {r.why}" for name, r in readings.items() if r.level is Level.RED)
        factor *= self.recipe.yellow_factor if is_acting and level is Level.YELLOW else 1.0
        rate = self.recipe.learning_rate * (self.pace if self.recipe.step_kl else factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        metrics |= {"learning_rate": rate, "rate": factor}
        return None

    def _stamp(self, rows: Sequence[Row], left_out: Collection[str]) -> dict[str, float]:
        """Let every objective but those left out put its streams on the rows that it applies to. Returns their
        facts.
        """
        metrics: dict[str, float] = {}
        for objective in (each for each, _ in self.objectives if each.name not in left_out):
            with self.policy.shared_among(self.ranks):
                facts = objective.stamp(rows, self.policy)
            metrics |= {f"{objective.name}/{key}": value for key, value in facts.items()}
        return metrics

    def _accumulate(
        self,
        rows: Sequence[Row],
        weight_factors: Mapping[str, float],
        length: StepLength | None = None,
        heaviest: Sequence[Row] = (),
    ) -> dict[str, float]:
        """Gradients of the whole step, micro-batch by micro-batch, and its means per token. `length` keeps what the
        policy predicted. The rows in `heaviest` come first, so that their part of the gradient is known.
        """
        n_tokens = {objective.name: count(rows, objective.stream) for objective, _ in self.objectives}
        n_live = sum(row.n_tokens for row in rows if row.sample is not None)
        metrics: dict[str, float] = {"loss": 0.0, "entropy": 0.0}
        first = {id(row) for row in heaviest}
        parts = [rows] if not first else [[r for r in rows if id(r) in first], [r for r in rows if id(r) not in first]]
        gradients = Gradients(self.policy.parameters().values(), self.ranks)
        for part in parts:
            self._accumulate_part(part, n_tokens, n_live, weight_factors, length, metrics)
            gradients.take()
        gradients.give_back()
        metrics = self.ranks.add(metrics)
        if not math.isfinite(metrics["loss"]):
            raise NotFinite(f"the loss is {metrics['loss']}; the step is abandoned and the weights are unchanged")
        if not n_live:
            del metrics["entropy"]  # right replies alone: no token of the policy's
        return metrics | (gradients.influence() if first else {})

    def _accumulate_part(
        self,
        rows: Sequence[Row],
        n_tokens: Mapping[str, int],
        n_live: int,
        weight_factors: Mapping[str, float],
        length: StepLength | None,
        metrics: dict[str, float],
    ) -> None:
        """Add this rank's share of some rows to the gradients and the metrics. `n_tokens` and `n_live` are the whole
        step's. It stops where the loss is not finite.
        """
        batches = self.policy.batches(rows, self.ranks.budget(rows, self.micro_tokens))
        for indices in self.ranks.share(batches, rows):
            if not math.isfinite(metrics["loss"]):
                return  # the sum over ranks is not finite either: all give up together
            began = time.perf_counter()
            micro = [rows[i] for i in indices]
            batch = TokenBatch(micro, self.policy.predictions(micro))
            loss = torch.zeros((), device=self.policy.device)
            for objective, weight in self.objectives:
                if not any(objective.stream in row.streams for row in batch.rows):
                    continue
                term, n = objective.term(batch), n_tokens[objective.name]
                loss = loss + weight * weight_factors.get(objective.name, 1.0) * (term.total / n)
                for key, value in {"loss": term.total.item(), **term.sums}.items():
                    name = f"loss/{objective.name}" if key == "loss" else f"{objective.name}/{key}"
                    metrics[name] = metrics.get(name, 0.0) + value / n
            metrics["loss"] += loss.item()
            if not math.isfinite(metrics["loss"]):
                return
            loss.backward()  # type: ignore[no-untyped-call]
            metrics["entropy"] += batch.live_entropy / max(1, n_live)
            if length is not None:
                length.keep(batch)
            self.policy.rest(time.perf_counter() - began)

    def _clip(self) -> float:
        """Clip by global norm. Returns the norm before clipping."""
        parameters = list(self.policy.parameters().values())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.recipe.max_grad_norm))
        if not math.isfinite(norm):
            raise NotFinite(f"the gradient's norm is {norm}; the step is abandoned and the weights are unchanged")
        return norm


def _no_other_ranks(work: Work) -> None:
    """The default: no other ranks."""
