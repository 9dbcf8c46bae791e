"""Shadow groups in the journal: begun, drawn, scored, dropped, spent. Each change is one transaction of its caller.

A group is whole or absent: its replies are filed, scored and trained on together. Every end other than a step has a
reason, and the reasons are counted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlmodel import Session, col

from burnish.journal import blobs
from burnish.journal.jobs import enqueue, insert_or_skip
from burnish.journal.tables import (
    GroupSampleRow,
    InteractionRow,
    RubricJob,
    SampleRow,
    ShadowGroupRow,
    ShadowJob,
    ShadowRow,
    StepRow,
)
from burnish.journal.turns import blobs_of, to_bytes
from burnish.records import FloatArray, GroupState, IntArray, Message, StepOutcome
from burnish.rewards import MIN_RATINGS, PRAISE, RATINGS

Tree = dict[str, Any]
N_LATEST = 32
"""Latest ratings among which praise is counted."""
N_RATINGS = 256
"""Latest ratings among which dislike is counted."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One drawn reply: its message, and its tokens with their log-probs as sampled."""

    reply: Message
    finish_reason: str
    token_ids: IntArray
    logprobs: FloatArray


def are_rated(session: Session, agent: str) -> bool:
    """True if people praised enough of the replies that steps learned from last, and disliked enough of them lately, so
    that their ratings can score groups.

    While next to no reply pleases, the best of a group does not please either, and words teach faster.
    """
    rated = (
        select(col(SampleRow.interaction_id), col(SampleRow.reward))
        .join(StepRow, col(StepRow.step_id) == col(SampleRow.step_id))
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(SampleRow.interaction_id))
        .where(col(StepRow.agent) == agent, col(StepRow.outcome) != StepOutcome.OPEN)
        .where(col(SampleRow.reward_source).in_(RATINGS), func.abs(col(SampleRow.reward)) >= PRAISE)
        .where(col(InteractionRow.may_train).is_(True))
        .order_by(col(StepRow.step_id).desc(), col(InteractionRow.ended_at).desc())
    )
    found = {name: float(reward) for name, reward in session.execute(rated.limit(N_RATINGS))}  # steps may share rows
    rewards = list(found.values())
    n_praised, n_disliked = sum(each > 0 for each in rewards[:N_LATEST]), sum(each < 0 for each in rewards)
    return min(n_praised, n_disliked) >= MIN_RATINGS


def begin(
    session: Session,
    turn: InteractionRow,
    n_members: int,
    wish: str,
    record_id: str | None,
    *,
    version: int | None = None,
) -> bool:
    """Request a group of `n_members` for a turn. False if it has had one, whatever became of that.

    Without a `wish` all members are drawn, by `version`. Else the live reply is the first, and its version draws.
    """
    values = {
        "interaction_id": turn.interaction_id,
        "agent": turn.agent,
        "version": turn.version if version is None else version,
        "sampling": dict(turn.sampling),
        "n_members": n_members,
        "wish": wish,
        "record_id": record_id,
        "state": GroupState.DRAWING,
        "n_tokens": 0,
        "votes": [],
        "created_at": time.time(),
    }
    if not insert_or_skip(session, ShadowGroupRow, values):
        return False
    enqueue(session, ShadowJob, turn.interaction_id, {"interaction_id": turn.interaction_id, "agent": turn.agent})
    return True


def file(session: Session, interaction_id: str, drawn: Sequence[Drawn], *, for_judge: bool = True) -> bool:
    """Store all replies of a group at once, and let a judge score them unless another grader does.

    False if the group is no longer being drawn.
    """
    n_tokens = sum(len(each.token_ids) for each in drawn)
    changes = {"n_tokens": ShadowGroupRow.n_tokens + n_tokens, "drawn_at": time.time()}
    if not _move(session, interaction_id, GroupState.DRAWING, GroupState.DRAWN, **changes):
        return False
    for member, each in enumerate(drawn, 1):
        session.add(
            ShadowRow(
                interaction_id=interaction_id,
                member=member,
                reply_digest=blobs.store(session, each.reply),
                finish_reason=each.finish_reason,
                token_ids=to_bytes(each.token_ids),
                logprobs=to_bytes(each.logprobs),
            )
        )
    session.flush()
    if for_judge:
        enqueue(session, RubricJob, interaction_id, {"interaction_id": interaction_id})
    return True


def charge(session: Session, interaction_id: str, n_tokens: int) -> None:
    """Count tokens that were drawn for a group in vain."""
    values = {"n_tokens": col(ShadowGroupRow.n_tokens) + n_tokens, "drawn_at": time.time()}
    session.connection().execute(
        update(ShadowGroupRow).where(col(ShadowGroupRow.interaction_id) == interaction_id).values(**values)
    )


def score(
    session: Session,
    interaction_id: str,
    scores: Sequence[float | None],
    judge_id: str,
    votes: Sequence[Sequence[int] | None],
) -> bool:
    """Store the scores of all members, the live reply's first, None if it is no member. False if the group does not
    wait for them.
    """
    changes = {
        "score": scores[0],
        "judge_id": judge_id,
        "votes": [None if vote is None else list(vote) for vote in votes],
    }
    if not _move(session, interaction_id, GroupState.DRAWN, GroupState.SCORED, **changes):
        return False
    for member, value in enumerate(scores[1:], 1):
        mine = (col(ShadowRow.interaction_id) == interaction_id, col(ShadowRow.member) == member)
        session.connection().execute(update(ShadowRow).where(*mine).values(score=value))
    return True


def drop(session: Session, interaction_id: str, reason: str, **changes: Any) -> bool:
    """Drop the group. False if it was spent or dropped before."""
    is_open = col(ShadowGroupRow.state).in_((GroupState.DRAWING, GroupState.DRAWN, GroupState.SCORED))
    values = {"state": GroupState.DROPPED, "reason": reason[:500], **changes}
    changed = session.connection().execute(
        update(ShadowGroupRow)
        .where(col(ShadowGroupRow.interaction_id) == interaction_id, is_open, col(ShadowGroupRow.spent_step).is_(None))
        .values(**values)
    )
    return bool(changed.rowcount)


def drop_of(session: Session, turns: "Select[Any]", reason: str) -> None:
    """Drop every unspent group of these turns."""
    is_open = col(ShadowGroupRow.state).in_((GroupState.DRAWING, GroupState.DRAWN, GroupState.SCORED))
    mine = (col(ShadowGroupRow.interaction_id).in_(turns), is_open, col(ShadowGroupRow.spent_step).is_(None))
    session.connection().execute(update(ShadowGroupRow).where(*mine).values(state=GroupState.DROPPED, reason=reason))


def drop_version(session: Session, agent: str, version: int, reason: str) -> None:
    """Drop every unspent group of a version's replies."""
    is_open = col(ShadowGroupRow.state).in_((GroupState.DRAWING, GroupState.DRAWN, GroupState.SCORED))
    mine = (
        col(ShadowGroupRow.agent) == agent,
        col(ShadowGroupRow.version) == version,
        is_open,
        col(ShadowGroupRow.spent_step).is_(None),
    )
    session.connection().execute(update(ShadowGroupRow).where(*mine).values(state=GroupState.DROPPED, reason=reason))


def spend(session: Session, step_id: int) -> None:
    """Spend the groups of a step with a recorded outcome, once and together with its rows."""
    names = select(col(GroupSampleRow.interaction_id)).where(col(GroupSampleRow.step_id) == step_id)
    mine = (col(ShadowGroupRow.interaction_id).in_(names), col(ShadowGroupRow.spent_step).is_(None))
    session.connection().execute(update(ShadowGroupRow).where(*mine).values(state=GroupState.SPENT, spent_step=step_id))


def members_of(session: Session, interaction_id: str) -> list[ShadowRow]:
    """The drawn replies of a group, in their order."""
    return list(
        session.scalars(
            select(ShadowRow).where(col(ShadowRow.interaction_id) == interaction_id).order_by(col(ShadowRow.member))
        )
    )


def totals(session: Session, agent: str) -> Tree:
    """The agent's groups: counts by state, reasons of dropped ones, tokens drawn, votes of the judge."""
    execute = session.connection().execute
    count = (func.count(), func.coalesce(func.sum(col(ShadowGroupRow.n_tokens)), 0))
    states = execute(
        select(col(ShadowGroupRow.state), *count)
        .where(col(ShadowGroupRow.agent) == agent)
        .group_by(col(ShadowGroupRow.state))
    ).all()
    dropped: Tree = {}
    reasons = select(col(ShadowGroupRow.reason), func.count()).where(
        col(ShadowGroupRow.agent) == agent, col(ShadowGroupRow.state) == GroupState.DROPPED
    )
    for reason, n in execute(reasons.group_by(col(ShadowGroupRow.reason))):
        name = str(reason).partition(":")[0]  # the part after the colon is this group's own
        dropped[name] = dropped.get(name, 0) + int(n)
    by_state = {str(state): int(n) for state, n, _ in states}
    votes = sum(
        len(cast or ())
        for cast in session.scalars(select(col(ShadowGroupRow.votes)).where(col(ShadowGroupRow.agent) == agent))
    )
    return {"groups": by_state, "dropped": dropped, "tokens": sum(int(n) for _, _, n in states), "judge_votes": votes}


def tokens_since(session: Session, since: float) -> int:
    """Tokens of all groups that were drawn from at `since` or later. At least as many as were drawn since then."""
    total = select(func.coalesce(func.sum(col(ShadowGroupRow.n_tokens)), 0)).where(
        col(ShadowGroupRow.drawn_at) >= since
    )
    return int(session.connection().execute(total).scalar_one())


def tell(session: Session, interaction_id: str) -> Tree | None:
    """A turn's group as a tree of plain values. None if it has none."""
    row = session.get(ShadowGroupRow, interaction_id)
    if row is None:
        return None
    found = members_of(session, interaction_id)
    texts = blobs_of(session, [each.reply_digest for each in found])
    members = [{"member": each.member, "reply": texts[each.reply_digest], "score": each.score} for each in found]
    columns = ("state", "reason", "n_members", "wish", "n_tokens", "judge_id", "votes", "spent_step")
    return {**{name: getattr(row, name) for name in columns}, "score": row.score, "shadows": members}


def _move(session: Session, interaction_id: str, before: GroupState, after: GroupState, **changes: Any) -> bool:
    mine = (col(ShadowGroupRow.interaction_id) == interaction_id, col(ShadowGroupRow.state) == before)
    moved = session.connection().execute(update(ShadowGroupRow).where(*mine).values(state=after, **changes))
    return bool(moved.rowcount)
