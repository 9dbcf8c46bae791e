"""The grader by ratings: it scores shadow groups by how people would rate their replies (`rater.py`).

It learns from the ratings and the written replies that the agent's last steps were trained on, so their checks and
erasures hold here too, and from none whose user has opted out since. No user has a second rating among them before
every other user has one.

The rater knows a reply's form, and nothing of what it says. So a part of a score is how well the reply fits the
question (`content.py`).

Guarantee: while the rater is unfit, groups are dropped with that reason and never scored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.journal import Journal, shadows
from burnish.journal.tables import InteractionRow, SampleRow, ShadowGroupRow, StepRow
from burnish.journal.turns import from_bytes, messages_of
from burnish.learner.data import good_replies
from burnish.learner.grading import content, rater
from burnish.learner.grading.rater import Rated, Rater
from burnish.learner.model.policy import Policy
from burnish.messages import text_of
from burnish.records import GroupState, StepOutcome, Who, who_of
from burnish.rewards import PRAISE, RATINGS

log = structlog.get_logger(__name__)
N_RATINGS = 512
"""Most ratings that the rater learns from, the latest first."""
N_WRITTEN = 128
"""Most good replies among which those that people wrote are looked for."""
CONTENT_SHARE = 0.3
"""Share of a score that is the reply's place in its group by content."""
PRAISE_SPREAD = 0.2
"""Replies whose probabilities of praise differ by less are equally good to the rater. A group of them is dropped."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A rating in the journal, as `good_replies.balanced` reads it."""

    interaction_id: str
    user: Who
    rated: Rated


@dataclass(frozen=True, slots=True)
class _Group:
    """A drawn group as texts: what the prompt's last message asks, and the replies."""

    question: str
    replies: Sequence[str]


class RatingGrader:
    """Scores one agent's drawn groups."""

    def __init__(self, journal: Journal, agent: str, policy: Policy) -> None:
        self._journal = journal
        self._agent = agent
        self._policy = policy
        self._fitted: tuple[list[Rated], Rater | None] = ([], None)

    def grade(self, limit: int) -> int:
        """Score up to `limit` groups that were drawn, oldest first. Returns how many were processed."""
        with self._journal.read() as session:
            groups = {name: self._group(session, name) for name in self._drawn(session, limit)}
            rated = self._ratings(session) if groups else []
        if not groups:
            return 0
        judge = self._rater(rated)
        scores = self._scores(groups, judge) if judge is not None and judge.is_fit else {}
        with self._journal.write() as session:
            for name in groups:
                _end(session, name, scores.get(name), judge)
        log.info("scored shadow groups", agent=self._agent, n=len(scores), rank=judge and round(judge.rank, 3))
        return len(groups)

    def _scores(self, groups: Mapping[str, _Group], judge: Rater) -> dict[str, list[float]]:
        """The scores of each group. All are equal if the rater sees no difference."""
        praise = {name: judge.scores(group.replies) for name, group in groups.items()}
        scores = {}
        for name, values in praise.items():
            if max(values) - min(values) < PRAISE_SPREAD:
                scores[name] = [0.5] * len(values)
                continue
            places = _places(content.fits(groups[name].replies, groups[name].question, self._policy))
            pairs = zip(values, places, strict=True)
            scores[name] = [(1.0 - CONTENT_SHARE) * each + CONTENT_SHARE * place for each, place in pairs]
        return scores

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._policy.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _drawn(self, session: Session, limit: int) -> list[str]:
        mine = (
            col(ShadowGroupRow.agent) == self._agent,
            col(ShadowGroupRow.state) == GroupState.DRAWN,
            col(ShadowGroupRow.wish) == "",
        )
        query = select(col(ShadowGroupRow.interaction_id)).where(*mine).order_by(col(ShadowGroupRow.created_at))
        return list(session.scalars(query.limit(limit)))

    def _group(self, session: Session, name: str) -> _Group:
        turn = session.get_one(InteractionRow, name)
        (last,) = messages_of(session, turn.message_digests[-1:])
        replies = [self._decoded(from_bytes("i", each.token_ids)) for each in shadows.members_of(session, name)]
        return _Group(text_of(last), replies)

    def _rater(self, rated: list[Rated]) -> Rater | None:
        """The rater of these ratings, fitted once."""
        if self._fitted[0] != rated:
            self._fitted = rated, rater.fit(rated) if rated else None
        return self._fitted[1]

    def _ratings(self, session: Session) -> list[Rated]:
        """The decided ratings that steps were trained on, and the replies that people wrote."""
        rewards = (
            select(SampleRow.reward, InteractionRow)  # type: ignore[call-overload]
            .join(StepRow, col(StepRow.step_id) == col(SampleRow.step_id))
            .join(InteractionRow, col(InteractionRow.interaction_id) == col(SampleRow.interaction_id))
            .where(col(StepRow.agent) == self._agent, col(StepRow.outcome) != StepOutcome.OPEN)
            .where(func.abs(col(SampleRow.reward)) >= PRAISE, col(SampleRow.reward_source).in_(RATINGS))
            .where(col(InteractionRow.may_train).is_(True))
            .order_by(col(SampleRow.step_id).desc(), col(InteractionRow.ended_at).desc())
            .limit(2 * N_RATINGS)
        )
        found: list[_Found] = []
        for reward, turn in session.execute(rewards):
            name = turn.interaction_id
            rated = Rated(name, self._decoded(from_bytes("i", turn.token_ids)), reward > 0)
            found.append(_Found(name, who_of(turn.tenant, turn.key_id, turn.user), rated))
        good = good_replies.earlier(session, self._agent, N_WRITTEN, self._policy.tokenizer)
        written = [
            Rated(f"written in {each.record_id}", self._decoded(each.completion_ids), True)
            for each in good
            if each.record_id is not None
        ]
        return [*(each.rated for each in good_replies.balanced(found, N_RATINGS)), *written]


def _places(values: Sequence[float]) -> list[float]:
    """The share of the other values that each one exceeds, a half for equal ones."""
    others = max(1, len(values) - 1)
    return [
        (sum(value > other for other in values) + 0.5 * (sum(value == other for other in values) - 1)) / others
        for value in values
    ]


def _end(session: Session, name: str, scores: Sequence[float] | None, judge: Rater | None) -> None:
    """Store the scores of a group, or drop it with the reason."""
    if scores is None:
        rank = "no rating of both kinds" if judge is None else f"rank {judge.rank:.2f}"
        shadows.drop(session, name, f"the rater is unfit: {rank}")
        return
    assert judge is not None
    identity = f"ratings/{judge.n_praised}+{judge.n_disliked}"
    if shadows.score(session, name, [None, *scores], identity, []) and max(scores) == min(scores):
        shadows.drop(session, name, "no spread: the rater finds all replies equally good")
