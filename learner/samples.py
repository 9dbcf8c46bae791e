"""Sample: one recorded reply as training data, or the reason why it is none.

Guarantees: token ids are the engine's, never re-tokenised; behaviour log-probs are the engine's, never filled in; what is
absent is None. `has_ratio` says whether the log-probs are those of the full softmax at `temperature`: only then may a row
carry a policy gradient. A row that was sampled otherwise (greedy, top-p, constrained) can still be distilled, because a
divergence at the states visited needs no importance ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from burnish.records import FloatArray, IntArray, Interaction, Message, Reward
from learner.prompts import hinted_prompt

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.3, 1.3
"""Outside, tempered log-probs say little about the policy that is served (reference/algorithms.md §1.5)."""


class SkipReason(StrEnum):
    """Why a reply is not trained on."""

    OPTED_OUT = "opted_out"  # the client asked for it not to be
    QUARANTINED = "quarantined"  # ids and log-probs do not belong together
    ABORTED = "aborted"  # the client went away: what it did not read cannot be judged
    TRUNCATED = "truncated"  # the length limit ended it, not the policy
    EMPTY = "empty"  # no prompt or no sampled token
    DEGENERATE = "degenerate"  # a log-prob is not finite or above 0, or every token was certain
    NO_SIGNAL = "no_signal"  # neither reward nor hint so far
    NEUTRAL = "neutral"  # a reward of exactly 0, no hint: the next state neither praised nor blamed
    NOT_PLAIN = "not_plain"  # a reward but no usable ratio, and no hint to distil
    UNRENDERABLE = "unrenderable"  # only a hint, and the teacher's prompt cannot be made


@dataclass(frozen=True, slots=True)
class Skipped:
    """A reply that is not trained on; final for all reasons but NO_SIGNAL and NEUTRAL, since better records may come late."""

    interaction_id: str
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn, ready to train. `version` is the policy that sampled it, `record_ids` the records behind the reward.

    `messages` and `tools` are kept for the shuffled control alone, which has to put a hint into another row's prompt.
    `hinted_prompt_ids` is None exactly where `hint` is; `is_hint_lost` says that there was a hint for which no teacher's
    prompt could be made. `step` is the turn's place in a tool session whose outcome is part of the reward, else None.
    """

    interaction_id: str
    version: int
    prompt_ids: IntArray
    completion_ids: IntArray
    behaviour_logprobs: FloatArray
    temperature: float
    has_ratio: bool
    reward: float | None
    reward_source: str | None
    record_ids: tuple[str, ...]
    hint: str | None
    hinted_prompt_ids: "IntArray | None"
    is_hint_lost: bool
    session: str | None
    key_id: str
    user: str | None
    messages: Sequence[Message] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    step: int | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.completion_ids)


def to_sample(
    interaction: Interaction, reward: Reward | None, tokenizer: Any, *, session: str | None = None
) -> Sample | Skipped:
    """What `interaction` teaches given its effective `reward`; `session` is the journal's, not the client's word.

    A greedy row counts with temperature 1: that is where its teacher and student are compared.
    """
    reason = _unusable(interaction)
    if reason is None and reward is None:
        reason = SkipReason.NO_SIGNAL
    if reason is not None or reward is None:
        return Skipped(interaction.interaction_id, reason or SkipReason.NO_SIGNAL)

    sampling = interaction.sampling
    has_ratio = sampling.is_plain and MIN_TEMPERATURE <= sampling.temperature <= MAX_TEMPERATURE
    hinted = None
    if reward.hint:
        hinted = hinted_prompt(tokenizer, interaction.messages, interaction.tools, reward.hint, interaction.prompt_ids)
    if hinted is None and not has_ratio:
        unmade = SkipReason.UNRENDERABLE if reward.hint else SkipReason.NOT_PLAIN
        return Skipped(interaction.interaction_id, unmade)
    if hinted is None and reward.value == 0.0 and reward.step is None:
        return Skipped(interaction.interaction_id, SkipReason.NEUTRAL)
    return Sample(
        interaction_id=interaction.interaction_id,
        version=interaction.version,
        prompt_ids=interaction.prompt_ids,
        completion_ids=interaction.token_ids,
        behaviour_logprobs=interaction.logprobs,
        temperature=sampling.temperature if sampling.temperature > 0 else 1.0,
        has_ratio=has_ratio,
        reward=reward.value,
        reward_source=reward.source,
        record_ids=tuple(reward.record_ids),
        hint=reward.hint if hinted is not None else None,
        hinted_prompt_ids=hinted,
        is_hint_lost=bool(reward.hint) and hinted is None,
        session=session,
        key_id=interaction.key_id,
        user=interaction.user,
        messages=interaction.messages,
        tools=interaction.tools,
        step=reward.step,
    )


def _unusable(interaction: Interaction) -> SkipReason | None:
    logprobs = interaction.logprobs
    if not interaction.may_train:
        return SkipReason.OPTED_OUT
    if interaction.quarantine is not None or len(interaction.token_ids) != len(logprobs):
        return SkipReason.QUARANTINED
    if interaction.is_aborted:
        return SkipReason.ABORTED
    if interaction.finish_reason == "length":
        return SkipReason.TRUNCATED
    if not interaction.token_ids or not interaction.prompt_ids:
        return SkipReason.EMPTY
    if any(not math.isfinite(value) or value > 1e-6 for value in logprobs) or all(value == 0.0 for value in logprobs):
        return SkipReason.DEGENERATE
    return None
