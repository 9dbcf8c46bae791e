"""The hint as the grader of shadow groups: how likely a reply makes it that its author knew the hint.

With even prior odds, Bayes' rule gives for a reply y to a prompt x and a hint h (from the user's reaction)

P(h | x, y) = π(y | x, h) / (π(y | x, h) + π(y | x)) = σ(log π(y | x, h) − log π(y | x)),

with π the frozen base, and h placed as for the teacher of hindsight distillation (learner/data/teacher_prompts.py). So
a group is scored without a judge, by one reward function that does not drift. The base must obey hints in context,
which distillation needs as well. If there are several hints (`groups.earlier_hints`), the score is the mean over them:
a reply that follows one of two is better than one that follows none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
import torch
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal import Journal, shadows
from burnish.journal.tables import InteractionRow, ShadowGroupRow
from burnish.journal.turns import from_bytes, interaction_of
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import hinted_prompt
from burnish.learner.model.base_model import revision
from burnish.learner.model.policy import Policy, Weights
from burnish.records import GroupState

log = structlog.get_logger(__name__)
MIN_SPREAD = 0.05
"""Scores that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A group's replies, the live one first, under the plain prompt and under the prompt of each hint that can be
    inserted.
    """

    interaction_id: str
    plain: list[Text]
    hinted: list[list[Text]]


class HintGrader:
    """Scores one agent's drawn groups with the learner's own base."""

    def __init__(self, journal: Journal, agent: str, policy: Policy) -> None:
        self._journal = journal
        self._agent = agent
        self._policy = policy
        self._name = f"wish/{revision(policy.base_dir)[:12]}"

    def grade(self, limit: int) -> int:
        """Score up to `limit` groups that were drawn, oldest first. Returns how many were processed.

        Groups are dropped with the reason if their hint cannot be inserted into the prompt faithfully or their scores
        are equal.
        """
        drawn = (
            col(ShadowGroupRow.agent) == self._agent,
            col(ShadowGroupRow.state) == GroupState.DRAWN,
            col(ShadowGroupRow.wish) != "",
        )
        query = (
            select(col(ShadowGroupRow.interaction_id))
            .where(*drawn)
            .order_by(col(ShadowGroupRow.created_at))
            .limit(limit)
        )
        with self._journal.read() as session:
            found = [asked for name in session.scalars(query) if (asked := self._read(session, name)) is not None]
        if not found:
            return 0
        known = [asked for asked in found if asked.hinted]
        scores = self._scores(known)
        with self._journal.write() as session:
            for asked in found:
                self._end(session, asked.interaction_id, scores.get(asked.interaction_id))
        log.info("scored shadow groups", agent=self._agent, n=len(known), lost=len(found) - len(known))
        return len(found)

    def _scores(self, asked: Sequence[_Asked]) -> dict[str, list[float]]:
        """By turn, each reply's mean posterior over the hints."""
        plain = [text for each in asked for _ in each.hinted for text in each.plain]
        hinted = [text for each in asked for replies in each.hinted for text in replies]
        scored = iter(posteriors(self._policy, plain, hinted))
        by_hint = {each.interaction_id: [[next(scored) for _ in each.plain] for _ in each.hinted] for each in asked}
        return {
            name: [sum(values) / len(values) for values in zip(*rows, strict=True)] for name, rows in by_hint.items()
        }

    def _end(self, session: Session, name: str, scores: Sequence[float] | None) -> None:
        if scores is None:
            shadows.drop(session, name, "hint lost: the prompt has no place for the wish")
        elif shadows.score(session, name, scores, self._name, []) and max(scores) - min(scores) < MIN_SPREAD:
            shadows.drop(session, name, f"no spread: {min(scores):.3g} to {max(scores):.3g}")

    def _read(self, session: Session, name: str) -> _Asked | None:
        row, turn = session.get(ShadowGroupRow, name), session.get(InteractionRow, name)
        if row is None or turn is None:
            return None
        live = interaction_of(session, turn)
        replies = [live.token_ids, *(from_bytes("i", member.token_ids) for member in shadows.members_of(session, name))]
        tokenizer, hints = self._policy.tokenizer, row.wish.splitlines()
        prompts = [hinted_prompt(tokenizer, live.messages, live.tools, hint, live.prompt_ids) for hint in hints]
        hinted = [[Text(prompt, ids) for ids in replies] for prompt in prompts if prompt is not None]
        return _Asked(name, [Text(live.prompt_ids, ids) for ids in replies], hinted)


def posteriors(policy: Policy, plain: Sequence[Text], hinted: Sequence[Text]) -> list[float]:
    """P(h | x, y) in (0, 1) of each reply, given under both prompts in the same order."""
    if not plain:
        return []
    found = [policy.logprobs(rows, Weights.BASE) for rows in (plain, hinted)]
    gains = torch.stack([after.sum() - before.sum() for before, after in zip(*found, strict=True)])
    return [float(value) for value in torch.sigmoid(gains.double())]
