"""Hint validation: a hint is not taught if other users' praise contradicts it.

A satisfied user gives no hint. So the better an agent is, the more of the hints come from the few users who want
something other than the rest, and distillation gives those few all of its weight. Praise is evidence too: if a hint
makes praised replies less likely, their users count against it. Each other user has one vote if that user's last
decided feedback was praise. The vote is against the hint if the teacher with the hint finds the praised reply less
likely, and for it if more likely. There is no vote if the hint moves the praised reply less than half as much as the
reply that it was written for, because a hint on one task does not concern another. The hint's own author votes for it.
The hint is refused if evenly divided users would produce such a majority against it with a probability below one in
twenty (a one-sided sign test).
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.tables import InteractionRow, SampleRow, StepRow
from burnish.journal.turns import interaction_of
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import Sample
from burnish.learner.data.teacher_prompts import hinted_prompt, neutral
from burnish.learner.model.policy import Policy, Weights
from burnish.records import IntArray, Interaction, Message, StepOutcome, who_of
from burnish.rewards import PRAISE

DISPUTED = "disputed"
SIGNIFICANCE = 0.05
MIN_EFFECT_SHARE = 0.5
"""A hint counts for a liked reply if it moves it by at least this share of what it does to its own reply."""
_LEAST_GAIN = 1e-3
"""Nats a token. Smaller effects never count."""
_N_STEPS = 16
"""Steps from which the users' latest feedback is read. Older praise was for an agent that has changed since."""


@dataclass(frozen=True, slots=True)
class LikedReply:
    """A user, and the latest of that user's turns with decided feedback, which was praise."""

    user: Hashable
    interaction_id: str
    prompt_ids: IntArray
    completion_ids: IntArray
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]

    def hinted(self, words: str, tokenizer: Any) -> Text | None:
        """The praised reply behind a prompt with `words` as a hint. None if they cannot be inserted there."""
        ids = hinted_prompt(tokenizer, self.messages, self.tools, words, self.prompt_ids)
        return Text(ids, self.completion_ids) if ids is not None else None

    @classmethod
    def of(cls, turn: Interaction) -> "LikedReply":
        who = who_of(turn.tenant, turn.key_id, turn.user)
        return cls(who, turn.interaction_id, turn.prompt_ids, turn.token_ids, turn.messages, turn.tools)


def sign_test(n_against: int, n_voting: int) -> float:
    """P(X ≥ `n_against`) for X ~ Binomial(`n_voting`, 1/2)."""
    return float(sum(math.comb(n_voting, k) for k in range(n_against, n_voting + 1)) / 2**n_voting)


MIN_VOTES = next(n for n in itertools.count(1) if sign_test(n, n + 1) <= SIGNIFICANCE)
"""With fewer votes, not even a unanimous one could refuse a hint."""


@dataclass(frozen=True, slots=True)
class ValidatedHints:
    """The samples without contradicted hints, and by interaction id the code of each lost hint.

    `share` is the share of the hints that is left, 0 to 1. A term that is normalised by its own rows has to be
    multiplied by it, or the few hints that no vote could refuse would carry the whole weight.
    """

    samples: Sequence[Sample]
    refused: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    facts: Mapping[str, float] = field(default_factory=dict)


def validate_hints(
    samples: Sequence[Sample], earlier: Sequence[LikedReply], policy: Policy, n_liked_replies: int
) -> ValidatedHints:
    """Test every hint against liked replies.

    `earlier` are liked replies of steps before. A user's feedback in `samples` replaces the earlier one. Each hint is
    tested against at most `n_liked_replies`. With 0, or with fewer users than could refuse a hint, nothing changes and
    nothing is computed.
    """
    liked_replies = latest_liked(samples, earlier)
    cases = [
        _Case(sample, [liked for liked in liked_replies if liked.user != sample.who][:n_liked_replies])
        for sample in samples
    ]
    cases = [
        case for case in cases if case.sample.hinted_prompt_ids is not None and len(case.liked_replies) >= MIN_VOTES
    ]
    if not cases:
        return ValidatedHints(samples)
    gains = _gains(cases, policy)
    refused = {case.sample.interaction_id: DISPUTED for case in cases if _is_disputed(case, gains)}
    kept = [sample.unhinted() if sample.interaction_id in refused else sample for sample in samples]
    n_hinted = sum(sample.hint is not None for sample in samples)
    facts = {"jury/n_heard": float(len(cases)), "jury/n_disputed": float(len(refused))}
    return ValidatedHints(kept, refused, 1.0 - len(refused) / n_hinted, facts)


def latest_liked(samples: Sequence[Sample], earlier: Sequence[LikedReply]) -> list[LikedReply]:
    """One liked reply for each user with praise as latest decided feedback: this step's `samples` first, then
    `earlier`.
    """
    found: dict[Hashable, LikedReply | None] = {}
    for sample in reversed(samples):
        if sample.reward is not None and abs(sample.reward) >= PRAISE:
            found.setdefault(sample.who, liked_reply(sample) if sample.reward > 0 else None)
    for liked in earlier:
        found.setdefault(liked.user, liked)
    return [liked for liked in found.values() if liked is not None]


def earlier(session: Session, agent: str, n: int) -> list[LikedReply]:
    """Liked replies of the agent's last steps, the newest first, at most `n`."""
    latest: dict[Hashable, tuple[str, float]] = {}
    for name, reward, who in _decided(session, agent):
        latest.setdefault(who, (name, reward))
    praised = [name for name, reward in latest.values() if reward > 0]
    return read(session, praised[:n])


def _decided(session: Session, agent: str) -> list[tuple[str, float, Hashable]]:
    """Turns of the agent's last steps with decided feedback, the newest first: id, reward, user."""
    last = (
        select(col(StepRow.step_id))
        .where(col(StepRow.agent) == agent, col(StepRow.outcome) != StepOutcome.OPEN)
        .order_by(col(StepRow.step_id).desc())
    )
    steps = list(session.scalars(last.limit(_N_STEPS)))
    words = (
        select(
            col(SampleRow.interaction_id),
            col(SampleRow.reward),
            col(InteractionRow.tenant),
            col(InteractionRow.key_id),
            col(InteractionRow.user),
        )
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(SampleRow.interaction_id))
        .where(col(SampleRow.step_id).in_(steps), col(SampleRow.reward).is_not(None))
        .where(col(InteractionRow.may_train).is_(True))
        .order_by(
            col(SampleRow.step_id).desc(), col(InteractionRow.ended_at).desc(), col(InteractionRow.interaction_id)
        )
    )
    found = session.connection().execute(words)
    return [
        (name, reward, who_of(tenant, key_id, user))
        for name, reward, tenant, key_id, user in found
        if reward is not None and abs(reward) >= PRAISE
    ]


def read(session: Session, names: Iterable[str]) -> list[LikedReply]:
    """The liked replies of the turns in `names`, in their order. Turns without a record are left out."""
    rows = (session.get(InteractionRow, name) for name in names)
    return [LikedReply.of(interaction_of(session, row)) for row in rows if row is not None]


@dataclass(frozen=True, slots=True)
class _Case:
    """A sample with a hint, and the liked replies that test it."""

    sample: Sample
    liked_replies: Sequence[LikedReply]

    @property
    def hint(self) -> str:
        return self.sample.hint or ""

    @property
    def author(self) -> LikedReply:
        return liked_reply(self.sample)


def _gains(cases: Sequence[_Case], policy: Policy) -> dict[tuple[str, str], float]:
    """By turn and hint: how much likelier, in nats a token, the hint makes the reply to the teacher than a neutral hint
    does.
    """
    texts: dict[tuple[str, str], Text] = {}
    for case in cases:
        for liked in (case.author, *case.liked_replies):
            for words in (case.hint, neutral(case.hint)):
                if (liked.interaction_id, words) not in texts and (
                    text := liked.hinted(words, policy.tokenizer)
                ) is not None:
                    texts[liked.interaction_id, words] = text
    scored = policy.logprobs(list(texts.values()), Weights.TEACHER)
    means = {key: float(logprobs.mean()) for key, logprobs in zip(texts, scored, strict=True)}
    return {
        (name, words): mean - means[name, neutral(words)]
        for (name, words), mean in means.items()
        if (name, neutral(words)) in means
    }


def _is_disputed(case: _Case, gains: Mapping[tuple[str, str], float]) -> bool:
    own = gains.get((case.sample.interaction_id, case.hint))
    if own is None:
        return False
    threshold = max(MIN_EFFECT_SHARE * abs(own), _LEAST_GAIN)
    votes = [gains.get((liked.interaction_id, case.hint), 0.0) for liked in case.liked_replies]
    n_against = sum(vote <= -threshold for vote in votes)
    n_for = 1 + sum(vote >= threshold for vote in votes)
    return sign_test(n_against, n_against + n_for) <= SIGNIFICANCE


def liked_reply(sample: Sample) -> LikedReply:
    """A praised sample as a liked reply."""
    return LikedReply(
        sample.who,
        sample.interaction_id,
        sample.prompt_ids,
        sample.completion_ids,
        sample.messages,
        sample.tools,
    )
