"""Hindsight distillation: the student learns to reply as if it had known the hint, or had read praised replies.

The teacher (last promoted adapter, or the base) scores the *same* completion with the hint in its prompt. Once there
are praised replies, it reads these as examples instead (learner/data/examples.py). The loss is the reverse KL from
student to teacher over the student's top K and a tail bin. Only rows with a hint or examples carry the term.
Off-policy tokens are weighted by κ = min(ρ, 2) if the row has a usable ratio, else by 1.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from burnish.learner.data.rows import Row, Text, TokenBatch
from burnish.learner.data.samples import Hinted, Sample
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.objectives.divergences import cap_per_token, tail_reverse_kl, token_distillation
from burnish.learner.objectives.losses import truncated_weights
from burnish.learner.objectives.objective import Objective, Term, row_weights

TOKEN_CAP = 2.0
"""Cap on one token, in nats: a few far tokens must not dominate the row."""
WEIGHT_CAP = 2.0
MIN_OVERLAP = 0.3
"""Share of the student's top K that must be in the teacher's. With less overlap the teacher is too different."""
MIN_GAIN = 1e-3
"""Nats a token by which a hint must change a disliked reply's log-prob, beyond the effect of a neutral hint."""
UNMOVED, FAR = "teacher_unmoved", "teacher_far"


class Distillation(Objective):
    """Reverse KL(student ‖ teacher with hint), top K + tail. With `check_hints` the teacher may refuse a hint."""

    name: ClassVar[str] = "distillation"
    stream: ClassVar[str] = "teacher_top"

    def __init__(self, *, top_k: int, check_hints: bool = True, teacher: Weights = Weights.TEACHER) -> None:
        self.top_k = top_k
        self.check_hints = check_hints
        self.teacher = teacher
        self._refused: dict[str, str] = {}
        self._chosen: dict[str, str] = {}

    @property
    def refusals(self) -> Mapping[str, str]:
        return self._refused

    @property
    def chosen(self) -> Mapping[str, str]:
        return self._chosen

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        # refusals and choices of an earlier step are cleared, even if this step has no hint at all
        self._refused, self._chosen = {}, {}
        carrying = [row for row in rows if row.sample is not None and row.sample.teacher_prompt_ids is not None]
        if not carrying:
            return {"n_rows": 0.0}
        # K ≤ V − 1, or the tail would be empty
        k = min(self.top_k, policy.model.config.vocab_size - 1)
        tops = policy.top(carrying, k)
        self._chosen = choose(carrying, tops, policy, self.teacher)
        taught = [(row, row.sample) for row in carrying if row.sample is not None]
        asked = [Text(sample.teacher_prompt_ids or (), row.completion_ids) for row, sample in taught]
        # examples are not checked: they are replies, and not somebody's words about one
        checked = [i for i, (_, s) in enumerate(taught) if self.check_hints and s.example_prompt_ids is None]
        neutral = [_neutral(*taught[i]) for i in checked]
        # in one call, because the two prompts of a row share their beginning
        found = policy.compared([*asked, *neutral], [*tops, *(tops[i] for i in checked)], self.teacher)
        compared, plain = found[: len(asked)], dict(zip(checked, found[len(asked) :], strict=True))
        for i, ((row, sample), ids, told) in enumerate(zip(taught, tops, compared, strict=True)):
            if i in plain:
                gain = float((told.sampled - plain[i].sampled).mean())
                reason = refusal(sample.reward, gain, told.overlap)
                if reason is not None:
                    self._refused[sample.interaction_id] = reason
                    continue
            recorded = torch.tensor(list(sample.behaviour_logprobs))
            row.streams["top_ids"] = ids
            row.streams["teacher_top"] = told.top
            # NaN marks "no usable ratio"; `term` gives those tokens weight 1
            row.streams["distill_behaviour"] = recorded if sample.has_ratio else torch.full_like(recorded, torch.nan)
        facts = {
            "n_rows": float(len(taught) - len(self._refused)),
            "overlap": sum(told.overlap for told in compared) / len(compared),
        }
        codes = list(self._refused.values())
        return facts | {f"n_{code}": float(codes.count(code)) for code in (UNMOVED, FAR)}

    def term(self, batch: TokenBatch) -> Term:
        index, ids = batch.where(self.stream), batch.at(self.stream, "top_ids")
        student = batch.at_ids(ids, index)
        weights = self.importance(batch, batch.sampled[index]) * row_weights(batch, self.stream)
        divergence = tail_reverse_kl(student, batch.stream(self.stream))
        total = (weights * cap_per_token(divergence, TOKEN_CAP)).sum()
        sums = {"divergence": divergence.detach().sum().item(), "top_mass": student.detach().exp().sum().item()}
        return Term(total, len(index), sums)

    def importance(self, batch: TokenBatch, sampled: Tensor) -> Tensor:
        """κ = min(ρ, 2) at the covered tokens [n], from their `sampled` log-probs. 1 in rows without a usable ratio."""
        behaviour = batch.at(self.stream, "distill_behaviour")
        return truncated_weights(sampled, behaviour, WEIGHT_CAP).nan_to_num(nan=1.0)


class TokenDistillation(Distillation):
    """Distillation at the sampled tokens alone: −κ·A·log π_θ with A = log π_T − log π_θ within ±2 nats.

    The teacher scores each sampled token with the hint in its prompt. One number per token instead of a distribution:
    no top K is kept, and the estimate is noisier. Rows, refusals and weights are those of `Distillation`, under the
    same name in metrics.
    """

    stream: ClassVar[str] = "teacher_sampled"

    def stamp(self, rows: Sequence[Row], policy: Policy) -> Mapping[str, float]:
        """As `Distillation.stamp`. Then the teacher's log-probs of the sampled tokens replace its top K."""
        facts = super().stamp(rows, policy)
        taught = [row for row in rows if row.streams.pop("teacher_top", None) is not None]
        prompts = [row.sample.hinted_prompt_ids if row.sample is not None else None for row in taught]
        asked = [Text(ids or (), row.completion_ids) for ids, row in zip(prompts, taught, strict=True)]
        for row, found in zip(taught, policy.logprobs(asked, self.teacher), strict=True):
            del row.streams["top_ids"]
            row.streams[self.stream] = found
        return facts

    def term(self, batch: TokenBatch) -> Term:
        student, teacher = batch.sampled[batch.where(self.stream)], batch.stream(self.stream)
        losses = self.importance(batch, student) * token_distillation(student, teacher, TOKEN_CAP)
        gap = (student.detach() - teacher).sum().item()
        return Term((row_weights(batch, self.stream) * losses).sum(), len(teacher), {"divergence": gap})


def _neutral(row: Row, sample: Sample) -> Text:
    """The reply behind a prompt with a neutral hint, or without one if it cannot be made."""
    return Text(sample.control_prompt_ids or row.prompt_ids, row.completion_ids)


def choose(
    rows: Sequence[Row], tops: Sequence[Tensor], policy: Policy, teacher: Weights = Weights.TEACHER
) -> dict[str, str]:
    """Give each row with several hints the one under which the teacher's top K is nearest to the student's (`tops`).

    That is argmax over hints of Σ_t |topK(π_θ) ∩ topK(π_T)|. The first wins a tie. Returns by interaction id the hints
    that replaced another.
    """
    asked: list[tuple[Row, Tensor, Hinted]] = []
    for row, top in zip(rows, tops, strict=True):
        sample = row.sample
        if sample is None or not sample.candidates or sample.hint is None or sample.hinted_prompt_ids is None:
            continue
        if sample.example_prompt_ids is not None:
            continue
        first = Hinted(sample.hint, sample.hinted_prompt_ids, sample.control_prompt_ids)
        asked += [(row, top, each) for each in (first, *sample.candidates)]
    if not asked:
        return {}
    texts = [Text(each.prompt_ids, row.completion_ids) for row, _, each in asked]
    compared = policy.compared(texts, [top for _, top, _ in asked], teacher)
    best: dict[int, tuple[float, Hinted]] = {}
    for (row, _, each), told in zip(asked, compared, strict=True):
        if id(row) not in best or told.overlap > best[id(row)][0]:
            best[id(row)] = told.overlap, each
    changed = {}
    for row in rows:
        if row.sample is not None and id(row) in best:
            before, row.sample = row.sample, row.sample.taught(best[id(row)][1])
            if row.sample.hint is not None and row.sample.hint != before.hint:
                changed[before.interaction_id] = row.sample.hint
    return changed


def refusal(reward: float | None, gain: float, overlap: float) -> str | None:
    """Why a hint is not taught. None if it is.

    `gain` is what the hint adds to the reply's log-prob, in nats a token. Its size says whether the teacher heeds the
    hint. Its sign says little: a reply that is close to the wish is likelier with the hint, and disliked all the same.
    """
    if overlap < MIN_OVERLAP:
        return FAR
    return UNMOVED if reward is not None and reward < 0.0 and abs(gain) < MIN_GAIN else None
