"""Turns as the stages read them: rows of the journal become the types of `burnish.records`."""

import json
import uuid
from array import array
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, inspect, or_, select
from sqlmodel import Session, col

from burnish.journal.blobs import MANY, prompt_of
from burnish.journal.jobs import enqueue, enqueue_again, insert_or_skip
from burnish.journal.tables import BlobRow, FeedbackRow, InteractionRow, JudgeJob, JudgementRow, NextStateRow
from burnish.records import (
    Feedback,
    FeedbackSource,
    Interaction,
    Judgement,
    Message,
    Provenance,
    Sampling,
    Signal,
    SignalKind,
    TargetKind,
)
from burnish.rewards import WORDS

RecordRow = TypeVar("RecordRow", FeedbackRow, JudgementRow, NextStateRow)
OPTED_OUT = "opted out"


def to_bytes(values: "array[Any]") -> bytes:
    return values.tobytes()


def from_bytes(code: str, data: bytes) -> "array[Any]":
    values: array[Any] = array(code)
    values.frombytes(data)
    return values


def messages_of(session: Session, digests: Sequence[str]) -> list[Message]:
    """The messages with `digests`, in their order."""
    found = blobs_of(session, digests)
    return [found[digest] for digest in digests]


def waiting() -> tuple[ColumnElement[bool], ...]:
    """What holds of turns that have a reward and wait for a step. They have an index of their own, with the agent."""
    return (
        col(InteractionRow.is_ready).is_(True),
        col(InteractionRow.spent_step).is_(None),
        col(InteractionRow.skip_reason).is_(None),
    )


def turns_with_reward(session: Session, agent: str, since: float, at_most: int) -> int:
    """How many of the agent's turns that ended after `since` have a reward or were trained on. Counts to `at_most`."""
    rated = or_(col(InteractionRow.is_ready).is_(True), col(InteractionRow.spent_step).is_not(None))
    found = select(col(InteractionRow.interaction_id)).where(
        col(InteractionRow.agent) == agent, col(InteractionRow.ended_at) > since, rated
    )
    counted = select(func.count()).select_from(found.limit(at_most).subquery())
    return int(session.connection().execute(counted).scalar_one())


def blobs_of(session: Session, digests: Collection[str]) -> dict[str, Any]:
    """The stored text of each of `digests`."""
    wanted = list(set(digests))
    found: dict[str, Any] = {}
    for start in range(0, len(wanted), MANY):
        some = select(col(BlobRow.digest), col(BlobRow.body)).where(
            col(BlobRow.digest).in_(wanted[start : start + MANY])
        )
        found |= {str(digest): json.loads(str(body)) for digest, body in session.connection().execute(some)}
    return found


def _tools_of(session: Session, digest: str | None) -> tuple[Mapping[str, Any], ...]:
    tools: Any = messages_of(session, [digest])[0] if digest else ()
    return tuple(tools)


def interaction_of(session: Session, row: InteractionRow) -> Interaction:
    """The Interaction that `row` records."""
    return Interaction(
        interaction_id=row.interaction_id,
        request_id=row.request_id,
        agent=row.agent,
        version=row.version,
        tenant=row.tenant,
        key_id=row.key_id,
        messages=messages_of(session, row.message_digests),
        reply=messages_of(session, [row.reply_digest])[0],
        started_at=row.started_at,
        ended_at=row.ended_at,
        finish_reason=row.finish_reason,
        sampling=Sampling(**row.sampling),  # type: ignore[arg-type]
        prompt_ids=prompt_of(session, row),
        token_ids=from_bytes("i", row.token_ids),
        logprobs=from_bytes("f", row.logprobs),
        tools=_tools_of(session, row.tools_digest),
        choice=row.choice,
        n_choices=row.n_choices,
        user=row.user,
        quoted_user=row.quoted_user,
        turn_type=row.turn_type,
        may_train=row.may_train,
        is_aborted=row.is_aborted,
        quarantine=row.quarantine,
    )


def of_same_voice(row: InteractionRow) -> tuple[ColumnElement[bool], ...]:
    """Conditions for the turns of the same proved user; without one, for those of the same key without one."""
    tenant = col(InteractionRow.tenant) == row.tenant
    if row.user is not None:
        return tenant, col(InteractionRow.user) == row.user
    return tenant, col(InteractionRow.user).is_(None), col(InteractionRow.key_id) == row.key_id


def right_reply_of(session: Session, interaction_id: str) -> FeedbackRow | None:
    """The latest feedback of a user with a right reply to the turn (a demonstration or a correction). None if there is
    none.
    """
    holds = or_(col(FeedbackRow.demonstration) != "", col(FeedbackRow.correction) != "")
    users = (
        col(FeedbackRow.source) == FeedbackSource.USER,
        ~col(FeedbackRow.is_deleted),
        col(FeedbackRow.about) != TargetKind.SESSION,
    )
    wanted = select(FeedbackRow).where(col(FeedbackRow.interaction_id) == interaction_id, holds, *users)
    return session.scalars(wanted.order_by(col(FeedbackRow.created_at).desc(), col(FeedbackRow.feedback_id))).first()


def judge_subject(interaction_id: str, origin: str) -> str:
    return f"{interaction_id}|{origin}"


def ask_judge(session: Session, interaction_id: str, origin: str, *, again: bool = False) -> None:
    """Enqueue a judge job for one turn, once per origin, or `again` after an earlier one has ended."""
    add = enqueue_again if again else enqueue
    add(session, JudgeJob, judge_subject(interaction_id, origin), {"interaction_id": interaction_id, "origin": origin})


def spare_judge(session: Session, interaction_id: str, origin: str) -> None:
    """Take back a judge job that has not begun."""
    mine = (col(JudgeJob.subject) == judge_subject(interaction_id, origin), col(JudgeJob.state).in_(("queued", "held")))
    session.connection().execute(delete(JudgeJob).where(*mine))


def record_judgement(session: Session, judgement: Judgement, origin: str) -> bool:
    """Store a judgement, once per turn, judge and origin. False if it was stored already."""
    values: Mapping[str, Any] = {
        "judgement_id": f"j-{uuid.uuid4().hex}",
        "interaction_id": judgement.interaction_id,
        "judge_id": judgement.judge_id,
        "origin": origin,
        "score": judgement.score,
        "confidence": judgement.confidence,
        "hint": judgement.hint,
        "votes": list(judgement.votes),
        "n_failed": judgement.n_failed,
        "created_at": judgement.created_at,
        "reason": judgement.reason,
        "hint_status": judgement.hint_status,
        "findings": list(judgement.findings),
        "candidates": list(judgement.candidates),
    }
    return insert_or_skip(session, JudgementRow, values)


def record_words(session: Session, judgement: Judgement, origin: str) -> None:
    """Store a hint in the user's own words in place of the turn's earlier one, unless a step has used that."""
    earlier = (
        col(JudgementRow.interaction_id) == judgement.interaction_id,
        col(JudgementRow.judge_id).startswith(WORDS),
        col(JudgementRow.origin) == origin,
    )
    row = session.get(InteractionRow, judgement.interaction_id)
    if row is not None and row.spent_step is None:
        session.connection().execute(delete(JudgementRow).where(*earlier))
    record_judgement(session, judgement, origin)


def judgement_of(row: JudgementRow) -> Judgement:
    return Judgement(**{name: getattr(row, name) for name in Judgement.__dataclass_fields__})


def signal_of(tree: Mapping[str, Any]) -> Signal:
    """A signal as `NextStateRow.signals` holds it."""
    return Signal(SignalKind(tree["kind"]), float(tree["value"]), Provenance(tree["provenance"]), str(tree["detail"]))


def feedback_of(row: FeedbackRow) -> Feedback:
    fields = {name: getattr(row, name) for name in Feedback.__dataclass_fields__}
    return Feedback(**fields | {"source": FeedbackSource(row.source), "about": TargetKind(row.about)})


def rows_of(session: Session, table: type[RecordRow], interaction_id: str) -> Sequence[RecordRow]:
    """One turn's rows of `table` in the order of their making, as plain rows with its columns."""
    return cast(
        Sequence[RecordRow], session.connection().execute(_rows_of(table), {"interaction": interaction_id}).all()
    )


@lru_cache
def _rows_of(table: type[RecordRow]) -> Select[*tuple[Any, ...]]:
    """The statement, built once, because building costs more than running it."""
    mine = col(table.interaction_id) == bindparam("interaction")
    return select(*inspect(table).columns).where(mine).order_by(col(table.created_at))
