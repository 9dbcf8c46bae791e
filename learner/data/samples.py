"""Sample: one recorded reply as training data, or the reason why it cannot be used.

Guarantees: token ids are the engine's and never re-tokenised. Behaviour log-probs are the engine's and never filled in.
Absent values are None. Everything is learned at temperature 1, whatever the request's, so two clients with different
sampling teach the same model (docs/decisions/0034-learned-at-temperature-one.md). `has_ratio` states that the policy
chose the tokens itself. Only then may a row carry a policy gradient. A row that was constrained, or that the length
limit cut off, can still be distilled, because a divergence at the states visited needs no importance ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from burnish.learner.data.teacher_prompts import hinted_prompt, neutral, right_reply
from burnish.records import FloatArray, IntArray, Interaction, Message, Reward, Who, who_of
from burnish.reply_metrics import repetition, tool_calls

MIN_LOOP, MAX_REPETITION = 64, 0.8
"""A long reply is a loop if more than this share of it are repeated 4-grams."""
_ENGINE_STOPS = ("error", "abort")
"""Finish reasons of the engine that are no decision of the policy."""


class SkipReason(StrEnum):
    """Why a reply is not trained on."""

    OPTED_OUT = "opted_out"  # the client asked for no training on it
    QUARANTINED = "quarantined"  # ids and log-probs do not belong together
    ABORTED = "aborted"  # the client disconnected: nobody can judge what it did not read
    TRUNCATED = "truncated"  # the length limit ended it, not the policy, and no hint says what it should have been
    ERROR = "error"  # the engine failed in mid-reply
    EMPTY = "empty"  # no prompt or no sampled token
    BAD_LOGPROBS = "bad_logprobs"  # a log-prob is not finite or above 0, or every token was certain
    FOREIGN_IDS = "foreign_ids"  # an id that the model's vocabulary does not have
    DEGENERATE = "degenerate"  # most of it repeats itself: a loop, whatever the feedback
    NO_SIGNAL = "no_signal"  # neither reward nor hint so far
    NEUTRAL = "neutral"  # a reward of exactly 0, no hint: the next state neither praised nor blamed
    NOT_CHOSEN = "not_chosen"  # a reward for tokens that the policy did not choose itself, and no hint to distil
    UNRENDERABLE = "unrenderable"  # only a hint, and the teacher's prompt cannot be made
    DUPLICATED = "duplicated"  # the same reply to the same prompt is in the batch already
    CAPPED = "capped"  # its user has so many rows in the batch that each would weigh almost nothing
    MISMATCH = "mismatch"  # the engine's log-probs are not those of the version that it reports
    VETOED = "vetoed"  # a token with a ratio that no update explains


class RightKind(StrEnum):
    """The kind of a right reply: one that a person wrote, or the agent's reply corrected."""

    DEMONSTRATION = "demonstration"
    CORRECTION = "correction"


@dataclass(frozen=True, slots=True)
class Right:
    """The text of a right reply, and the id of the feedback that contained it."""

    text: str
    kind: RightKind
    record_id: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A reply that is not trained on. Final for all reasons but NO_SIGNAL and NEUTRAL, because better records may come
    late.
    """

    interaction_id: str
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class Hinted:
    """A hint, the teacher's prompt with it, and a prompt with a neutral hint of equal length (None if it cannot be
    made).
    """

    hint: str
    prompt_ids: IntArray
    control_ids: "IntArray | None"


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn, ready to train. `version` is the policy that sampled it, `record_ids` the records behind the reward.

    `messages` and `tools` are kept only for the shuffled control, which puts a hint into another row's prompt.
    `hinted_prompt_ids` is None exactly if `hint` is. `control_prompt_ids` hold a neutral hint of equal length.
    `is_hint_lost`: there was a hint, but no teacher's prompt could be made for it. `step` is the turn's place in a tool
    session if the session's outcome is part of the reward, else None. `demonstration_ids` are the ids of a person's
    right reply (`right_kind` is its kind), from the policy's tokenizer and template. They are the only ids here that no
    engine sampled. `candidates` are hints with their prompts. The teacher may choose one of them in place of `hint`.
    `n_earlier` counts the turns of the same user that earlier steps spent, None if not counted. `n_calls` are the
    reply's tool calls, `n_broken_calls` those that do not parse. `example_prompt_ids` show praised replies before the
    conversation (learner/data/examples.py).
    """

    interaction_id: str
    version: int
    prompt_ids: IntArray
    completion_ids: IntArray
    behaviour_logprobs: FloatArray
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
    control_prompt_ids: "IntArray | None" = None
    demonstration_ids: "IntArray | None" = None
    right_kind: RightKind | None = None
    tenant: str = "default"
    n_earlier: int | None = None
    n_calls: int = 0
    n_broken_calls: int = 0
    candidates: tuple[Hinted, ...] = ()
    example_prompt_ids: "IntArray | None" = None

    @property
    def n_tokens(self) -> int:
        return len(self.completion_ids)

    @property
    def who(self) -> Who:
        """The person behind the turn, as far as the server can tell."""
        return who_of(self.tenant, self.key_id, self.user)

    @property
    def teacher_prompt_ids(self) -> "IntArray | None":
        """The prompt that the teacher reads: with examples, else with the hint. None if there is neither."""
        return self.example_prompt_ids if self.example_prompt_ids is not None else self.hinted_prompt_ids

    def unhinted(self) -> "Sample":
        """The same turn without any hint."""
        return replace(self, hint=None, hinted_prompt_ids=None, control_prompt_ids=None, candidates=())

    def taught(self, chosen: Hinted) -> "Sample":
        """The same turn with the hint that the teacher chose."""
        ids, control = chosen.prompt_ids, chosen.control_ids
        return replace(self, hint=chosen.hint, hinted_prompt_ids=ids, control_prompt_ids=control, candidates=())


def to_sample(
    interaction: Interaction,
    reward: Reward | None,
    tokenizer: Any,
    *,
    session: str | None = None,
    right: Right | None = None,
    n_vocab: int | None = None,
    n_earlier: int | None = None,
) -> Sample | Skipped:
    """The sample of `interaction` with its effective `reward`. `session` is the journal's, not the client's claim.

    A `right` reply alone is enough for a sample, so give one only if an objective learns from it. `n_vocab` is the
    model's, to detect foreign ids.
    """
    name, sampling = interaction.interaction_id, interaction.sampling
    if (unusable := _unusable(interaction, n_vocab)) is not None:
        return Skipped(name, unusable)
    where = (tokenizer, interaction.messages, interaction.tools)
    demonstration = right_reply(*where, right.text, interaction.prompt_ids) if right is not None else None
    if reward is None and demonstration is None:
        return Skipped(name, SkipReason.NO_SIGNAL)

    is_cut = interaction.finish_reason == "length"
    has_ratio = sampling.has_ratio and not is_cut  # its end was not the policy's choice
    hint = reward.hint if reward is not None else None
    hints = [hint, *reward.candidates] if reward is not None and hint else []
    made = [_hinted(*where, each, interaction.prompt_ids) for each in hints]
    usable = [each for each in made if each is not None]
    first = usable[0] if usable else None
    if first is None and demonstration is None:
        assert reward is not None
        if is_cut:
            return Skipped(name, SkipReason.TRUNCATED)
        if not has_ratio:
            return Skipped(name, SkipReason.UNRENDERABLE if hint else SkipReason.NOT_CHOSEN)
        if reward.value == 0.0 and reward.step is None:
            return Skipped(name, SkipReason.NEUTRAL)
    n_calls, n_broken = tool_calls(interaction.reply, bool(interaction.tools))
    records = [
        *(reward.record_ids if reward is not None else ()),
        *([right.record_id] if right and demonstration else ()),
    ]
    return Sample(
        interaction_id=name,
        version=interaction.version,
        prompt_ids=interaction.prompt_ids,
        completion_ids=interaction.token_ids,
        behaviour_logprobs=interaction.logprobs,
        has_ratio=has_ratio,
        reward=reward.value if reward is not None else None,
        reward_source=reward.source if reward is not None else None,
        record_ids=tuple(dict.fromkeys(records)),
        hint=first.hint if first is not None else None,
        hinted_prompt_ids=first.prompt_ids if first is not None else None,
        is_hint_lost=bool(hint) and first is None,
        session=session,
        key_id=interaction.key_id,
        user=interaction.user,
        messages=interaction.messages,
        tools=interaction.tools,
        step=reward.step if reward is not None else None,
        control_prompt_ids=first.control_ids if first is not None else None,
        demonstration_ids=demonstration,
        right_kind=right.kind if right is not None and demonstration is not None else None,
        tenant=interaction.tenant,
        n_earlier=n_earlier,
        n_calls=n_calls,
        n_broken_calls=n_broken,
        candidates=tuple(usable[1:]),
    )


def _hinted(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], hint: str, prompt_ids: IntArray
) -> Hinted | None:
    """The teacher's prompts for one hint. None if it cannot be inserted into the prompt faithfully."""
    prompt = hinted_prompt(tokenizer, messages, tools, hint, prompt_ids)
    if prompt is None:
        return None
    return Hinted(hint, prompt, hinted_prompt(tokenizer, messages, tools, neutral(hint), prompt_ids))


def _unusable(interaction: Interaction, n_vocab: int | None) -> SkipReason | None:
    if not interaction.may_train:
        return SkipReason.OPTED_OUT
    if interaction.quarantine is not None:
        return SkipReason.QUARANTINED
    if interaction.is_aborted:
        return SkipReason.ABORTED
    if interaction.finish_reason in _ENGINE_STOPS:
        return SkipReason.ERROR
    return defect(interaction.prompt_ids, interaction.token_ids, interaction.logprobs, n_vocab)


def defect(
    prompt_ids: Sequence[int], ids: Sequence[int], logprobs: Sequence[float], n_vocab: int | None = None
) -> SkipReason | None:
    """The defect of a reply's arrays. None if they can be trained on. Without `n_vocab` only ids below 0 are
    foreign."""
    if len(ids) != len(logprobs):
        return SkipReason.QUARANTINED
    if not ids or not prompt_ids:
        return SkipReason.EMPTY
    if any(not math.isfinite(value) or value > 1e-6 for value in logprobs) or all(value == 0.0 for value in logprobs):
        return SkipReason.BAD_LOGPROBS
    ends = math.inf if n_vocab is None else n_vocab
    if min(min(prompt_ids), min(ids)) < 0 or max(max(prompt_ids), max(ids)) >= ends:
        return SkipReason.FOREIGN_IDS
    if len(ids) >= MIN_LOOP and repetition(ids) > MAX_REPETITION:
        return SkipReason.DEGENERATE
    return None
