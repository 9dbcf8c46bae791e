"""Shadow groups in the learner, taken whole or not at all, and the learner's side of them in the journal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.holdout import HELD_OUT, is_held_out
from burnish.journal import Journal, shadows
from burnish.journal.blobs import prompt_of
from burnish.journal.tables import GroupSampleRow, InteractionRow, ShadowGroupRow, StepRow
from burnish.journal.turns import from_bytes
from burnish.learner.data.rows import Place, Row
from burnish.learner.data.samples import defect
from burnish.records import FloatArray, GroupState, IntArray

MOST_ROWS = 4
"""Most replies of a group that a step learns from."""


@dataclass(frozen=True, slots=True)
class Member:
    """One reply of a group: the sampled tokens, and its score in [0, 1]."""

    token_ids: IntArray
    logprobs: FloatArray
    score: float


@dataclass(frozen=True, slots=True)
class Group:
    """The replies to one live prompt, all by `version`. The live one is the first, if it is a member."""

    interaction_id: str
    version: int
    prompt_ids: IntArray
    members: tuple[Member, ...]
    session: str
    tenant: str
    key_id: str
    user: str | None

    @property
    def scores(self) -> list[float]:
        return [member.score for member in self.members]

    def rows(self) -> list[Row]:
        """A row for each member. Of a large group only the best and the worst ones, which differ most (PODS, arXiv
        2504.13818).
        """
        order = sorted(range(len(self.members)), key=lambda i: self.members[i].score)
        n = len(order) if len(order) <= MOST_ROWS else MOST_ROWS // 2
        chosen = [self.members[i] for i in sorted({*order[:n], *order[-n:]})]
        return [
            Row(self.prompt_ids, member.token_ids, place=Place(self.interaction_id, member.score, member.logprobs))
            for member in chosen
        ]

    def shuffled(self, generator: torch.Generator) -> "Group":
        """The same replies with permuted scores: the control, which must gain nothing."""
        order = torch.randperm(len(self.members), generator=generator).tolist()
        members = [replace(member, score=self.members[i].score) for member, i in zip(self.members, order, strict=True)]
        return replace(self, members=tuple(members))


def fault(group: Group, n_vocab: int | None = None) -> str | None:
    """Why a group cannot be trained on. None if it can."""
    if len(group.members) < 2 or max(group.scores) == min(group.scores):
        return "no spread"
    for number, member in enumerate(group.members):
        if (found := defect(group.prompt_ids, member.token_ids, member.logprobs, n_vocab)) is not None:
            return f"{found}: member {number}"
    return None


class Grader(Protocol):
    """Scores groups in the learner."""

    def grade(self, limit: int) -> int:
        """Score up to `limit` groups that were drawn, oldest first. Returns how many were processed."""


class GroupLedger:
    """One agent's shadow groups. `is_awaited`: a due step waits a little while they are drawn, and with enough of them
    it learns from nothing else.
    """

    def __init__(self, journal: Journal, agent: str, grader: Grader | None = None, *, is_awaited: bool = False) -> None:
        self._journal = journal
        self._agent = agent
        self._grader = grader
        self.is_awaited = is_awaited

    def grade(self, limit: int) -> None:
        """Score up to `limit` drawn groups if no judge does."""
        if self._grader is not None:
            self._grader.grade(limit)

    def may_begin(self) -> bool:
        """True if people's ratings can score groups."""
        with self._journal.read() as session:
            return shadows.are_rated(session, self._agent)

    def is_drawing(self) -> bool:
        """True while groups are being drawn."""
        mine = (col(ShadowGroupRow.agent) == self._agent, col(ShadowGroupRow.state) == GroupState.DRAWING)
        with self._journal.read() as session:
            return session.scalar(select(col(ShadowGroupRow.interaction_id)).where(*mine).limit(1)) is not None

    def drop_stale(self, live: int, lags: Callable[[int], Callable[[int], int]], max_lag: int) -> None:
        """Drop the groups of versions that a step from `live` cannot learn from, before they take the place of others.

        A step that waits for groups learns from those of the live version alone.
        """
        versions = select(col(ShadowGroupRow.version)).distinct()
        mine = (
            col(ShadowGroupRow.agent) == self._agent,
            col(ShadowGroupRow.state).in_((GroupState.DRAWING, GroupState.DRAWN, GroupState.SCORED)),
            col(ShadowGroupRow.spent_step).is_(None),
            col(ShadowGroupRow.version) != live,
        )
        with self._journal.read() as session:
            others = list(session.scalars(versions.where(*mine)))
        if not others:
            return
        lag = lags(live)
        behind = {version: lag(version) for version in others}
        most = 0 if self.is_awaited else max_lag
        stale = {version: steps for version, steps in behind.items() if steps > most}
        if stale:
            with self._journal.write() as session:
                for version, steps in stale.items():
                    shadows.drop_version(session, self._agent, version, f"stale: {steps} versions behind")

    def choose(self, limit: int, holdout: float, n_vocab: int | None = None) -> list[Group]:
        """Up to `limit` scored groups, oldest first. Groups that can never be trained are dropped with the reason."""
        open_ones = (
            col(ShadowGroupRow.agent) == self._agent,
            col(ShadowGroupRow.state) == GroupState.SCORED,
            col(ShadowGroupRow.spent_step).is_(None),
        )
        with self._journal.read() as session:
            names = list(
                session.scalars(
                    select(col(ShadowGroupRow.interaction_id))
                    .where(*open_ones)
                    .order_by(col(ShadowGroupRow.created_at))
                    .limit(limit)
                )
            )
            found = [each for name in names if (each := read(session, name)) is not None]
        faults: dict[str, str] = {}
        for group in found:
            if is_held_out(group.session, holdout):
                faults[group.interaction_id] = HELD_OUT
            elif (why := fault(group, n_vocab)) is not None:
                faults[group.interaction_id] = why
        if faults:
            with self._journal.write() as session:
                for name, why in faults.items():
                    shadows.drop(session, name, why)
        return [group for group in found if group.interaction_id not in faults]


def read(session: Session, interaction_id: str, scores: Sequence[float] | None = None) -> Group | None:
    """The group of a turn with past `scores`, else with the present ones. None if it is not complete."""
    row, turn = session.get(ShadowGroupRow, interaction_id), session.get(InteractionRow, interaction_id)
    if row is None or turn is None:
        return None
    drawn = shadows.members_of(session, interaction_id)
    arrays = [(each.token_ids, each.logprobs) for each in drawn]
    own_scores = [each.score for each in drawn]
    if row.has_live:
        arrays, own_scores = [(turn.token_ids, turn.logprobs), *arrays], [row.score, *own_scores]
    found_scores = own_scores if scores is None else list(scores)
    if {len(arrays), len(found_scores)} != {row.n_members} or any(value is None for value in found_scores):
        return None
    members = [
        Member(from_bytes("i", ids), from_bytes("f", logprobs), float(value))  # type: ignore[arg-type]
        for (ids, logprobs), value in zip(arrays, found_scores, strict=True)
    ]
    return Group(
        interaction_id,
        row.version,
        prompt_of(session, turn),
        tuple(members),
        turn.session_id,
        turn.tenant,
        turn.key_id,
        turn.user,
    )


def record_choice(session: Session, step: StepRow, groups: Sequence[Group]) -> None:
    """Record which groups a step takes, with their present scores."""
    assert step.step_id is not None
    for group in groups:
        session.add(GroupSampleRow(step_id=step.step_id, interaction_id=group.interaction_id, scores=group.scores))


def record_outcomes(session: Session, step: StepRow, skipped: Mapping[str, str], weights: Mapping[str, float]) -> None:
    """Record the outcome of a step's groups: which carried no term and why, and which weigh less because of a cap."""
    assert step.step_id is not None
    for column, values in (("skipped", skipped), ("weight", weights)):
        for name, value in values.items():
            setattr(session.get_one(GroupSampleRow, (step.step_id, name)), column, value)
