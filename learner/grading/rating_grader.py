"""The grader by ratings: it scores shadow groups by how people would rate their replies (`rater.py`).

It learns from the ratings and the written replies that the agent's last steps were trained on, so their checks and
erasures hold here too, and from none whose user has opted out since. No user has a second rating among them before
every other user has one.

Guarantee: while the rater is unfit, groups are dropped with that reason and never scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import func, select
from sqlmodel import Session, col
from torch import Tensor, stack

from burnish.journal import Journal, shadows
from burnish.journal.tables import InteractionRow, SampleRow, ShadowGroupRow, StepRow
from burnish.journal.turns import from_bytes, to_bytes
from burnish.learner.data import good_replies
from burnish.learner.data.rows import Text
from burnish.learner.grading import rater
from burnish.learner.grading.hint_grader import MIN_SPREAD
from burnish.learner.grading.rater import Rated, Rater
from burnish.learner.model.policy import Policy
from burnish.records import GroupState, StepOutcome, Who, who_of
from burnish.rewards import PRAISE, RATINGS

log = structlog.get_logger(__name__)
N_RATINGS = 512
"""Most ratings that the rater learns from, the latest first."""
N_WRITTEN = 128
"""Most good replies among which those that people wrote are looked for."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A rating in the journal, as `good_replies.balanced` reads it."""

    interaction_id: str
    user: Who
    rated: Rated


class RatingGrader:
    """Scores one agent's drawn groups with the learner's own base."""

    def __init__(self, journal: Journal, agent: str, policy: Policy) -> None:
        self._journal = journal
        self._agent = agent
        self._policy = policy
        self._features: dict[str, Tensor] = {}
        self._fitted: tuple[list[str], Rater | None] = ([], None)

    def grade(self, limit: int) -> int:
        """Score up to `limit` groups that were drawn, oldest first. Returns how many were processed."""
        with self._journal.read() as session:
            groups = {name: self._members(session, name) for name in self._drawn(session, limit)}
            rated = self._ratings(session) if groups else []
        if not groups:
            return 0
        judge = self._rater(rated)
        scores: dict[str, list[float]] = {}
        if judge is not None and judge.is_fit:
            texts = [text for members in groups.values() for text in members]
            found = iter(judge.scores(rater.features(self._policy, texts)))
            scores = {name: [next(found) for _ in members] for name, members in groups.items()}
        with self._journal.write() as session:
            for name in groups:
                _end(session, name, scores.get(name), judge)
        log.info("scored shadow groups", agent=self._agent, n=len(scores), rank=judge and round(judge.rank, 3))
        return len(groups)

    def _drawn(self, session: Session, limit: int) -> list[str]:
        mine = (
            col(ShadowGroupRow.agent) == self._agent,
            col(ShadowGroupRow.state) == GroupState.DRAWN,
            col(ShadowGroupRow.wish) == "",
        )
        query = select(col(ShadowGroupRow.interaction_id)).where(*mine).order_by(col(ShadowGroupRow.created_at))
        return list(session.scalars(query.limit(limit)))

    def _members(self, session: Session, name: str) -> list[Text]:
        """The replies of a group behind their prompt, the live one first."""
        row = session.get_one(InteractionRow, name)
        prompt = from_bytes("i", row.prompt_ids)
        replies = [row.token_ids, *(member.token_ids for member in shadows.members_of(session, name))]
        return [Text(prompt, from_bytes("i", ids)) for ids in replies]

    def _rater(self, rated: Sequence[Rated]) -> Rater | None:
        """The rater of these ratings. Only what is new is read by the base."""
        names = [each.name for each in rated]
        if self._fitted[0] != names:
            new = [each for each in rated if each.name not in self._features]
            found = list(rater.features(self._policy, [each.text for each in new])) if new else []
            known = self._features | {each.name: row for each, row in zip(new, found, strict=True)}
            self._features = {name: known[name] for name in names}
            self._fitted = names, rater.fit(stack(list(self._features.values())), rated) if names else None
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
            text = Text(from_bytes("i", turn.prompt_ids), from_bytes("i", turn.token_ids))
            name = turn.interaction_id
            rated = Rated(name, turn.prompt_ids.hex(), text, reward > 0)
            found.append(_Found(name, who_of(turn.tenant, turn.key_id, turn.user), rated))
        good = good_replies.earlier(session, self._agent, N_WRITTEN, self._policy.tokenizer)
        written = [
            Rated(
                f"written in {each.record_id}",
                to_bytes(each.prompt_ids).hex(),
                Text(each.prompt_ids, each.completion_ids),
                True,
            )
            for each in good
            if each.record_id is not None
        ]
        return [*(each.rated for each in good_replies.balanced(found, N_RATINGS)), *written]


def _end(session: Session, name: str, scores: Sequence[float] | None, judge: Rater | None) -> None:
    """Store the scores of a group, or drop it with the reason."""
    if scores is None:
        rank = "no rating of both kinds" if judge is None else f"rank {judge.rank:.2f}"
        shadows.drop(session, name, f"the rater is unfit: {rank}")
        return
    assert judge is not None
    identity = f"ratings/{judge.n_praised}+{judge.n_disliked}"
    if shadows.score(session, name, scores, identity, []) and max(scores) - min(scores) < MIN_SPREAD:
        shadows.drop(session, name, f"no spread: {min(scores):.3g} to {max(scores):.3g}")
