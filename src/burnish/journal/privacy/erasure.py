"""Erasure: what the journal holds of turns goes for good, and nothing else does. Each function is part of its caller's
transaction.

A text that is also part of another's turn stays as that turn's. What a step used stays as ids and numbers, without
words: so a version can always say what it was trained on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, TextClause, delete, func, or_, select, text, update
from sqlmodel import Session, SQLModel, col

from burnish.journal.evidence import settle
from burnish.journal.jobs import enqueue_again
from burnish.journal.tables import (
    CompareJob,
    ComparisonRow,
    ErasureJob,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    JobRow,
    JudgeJob,
    JudgementRow,
    NextStateRow,
    RubricJob,
    SampleRow,
    SessionRow,
    ShadowGroupRow,
    ShadowJob,
    ShadowRow,
    StepRow,
)
from burnish.journal.turns import judge_subject
from burnish.records import VersionName, Who, digest_of_voice
from burnish.rewards import FEEDBACK, NEXT_STATE

AT_ONCE = 500
"""Turns that one statement names."""
_OF_TURNS: tuple[type[Any], ...] = (JudgementRow, NextStateRow, FeedbackRow, ComparisonRow, ShadowRow, ShadowGroupRow)


@dataclass(slots=True)
class Erased:
    """What has gone. `touched` are other turns that had words of these in what came back to them."""

    turns: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    n_feedback: int = 0


def subject_of(who: Who) -> str:
    """The name of a voice's erasure. It does not reveal the voice."""
    return f"erasure-{digest_of_voice(who)}"


def ask(session: Session, who: Who, actor: str, reason: str | None) -> str:
    """Ask the ingester to erase everything of `who` up to now. Returns the erasure's name."""
    tenant, kind, name = who
    payload = {"tenant": tenant, "kind": kind, "name": name, "actor": actor, "reason": reason}
    enqueue_again(session, ErasureJob, subject_of(who), payload)
    return subject_of(who)


def turns_of(who: Who) -> tuple[ColumnElement[bool], ...]:
    """Conditions for the turns of a voice."""
    return _of(who, col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))


def feedback_of(who: Who) -> tuple[ColumnElement[bool], ...]:
    """Conditions for the feedback that a voice gave."""
    return _of(who, col(FeedbackRow.tenant), col(FeedbackRow.key_id), col(FeedbackRow.user))


def count(session: Session, who: Who) -> tuple[int, int]:
    """How many turns and how much feedback the journal has of a voice."""
    execute = session.connection().execute
    n_turns = execute(select(func.count()).select_from(InteractionRow).where(*turns_of(who))).scalar_one()
    n_said = execute(select(func.count()).select_from(FeedbackRow).where(*feedback_of(who))).scalar_one()
    return int(n_turns), int(n_said)


def erase_turns(session: Session, names: Sequence[str]) -> Erased:
    """Erase turns with all that was made from them: next states, judgements, feedback, shadow replies, comparisons,
    jobs. `drop_unused` then erases the texts.
    """
    gone = Erased(turns=list(names))
    for some in _batches(names):
        gone.touched += _forget_follower(session, some)
        sessions = list(
            session.scalars(
                select(col(InteractionRow.session_id)).where(col(InteractionRow.interaction_id).in_(some)).distinct()
            )
        )
        _drop_jobs(session, some)
        gone.n_feedback += _n(session, FeedbackRow, col(FeedbackRow.interaction_id).in_(some))
        for table in _OF_TURNS:
            _delete(session, table, col(table.interaction_id).in_(some))
        execute = session.connection().execute
        execute(update(SampleRow).where(col(SampleRow.interaction_id).in_(some)).values(hint=None))
        execute(update(InteractionRow).where(col(InteractionRow.parent_id).in_(some)).values(parent_id=None))
        _delete(session, InteractionRow, col(InteractionRow.interaction_id).in_(some))
        _forget_sessions(session, sessions)
    settle(session, *_unspent(session, gone.touched))
    return gone


def erase_feedback(session: Session, *where: ColumnElement[bool]) -> int:
    """Erase feedback, and the hints in the same words. The rewards of unspent turns are worked out anew."""
    found = session.connection().execute(
        select(col(FeedbackRow.feedback_id), col(FeedbackRow.interaction_id)).where(*where)
    )
    rows = [(str(name), turn) for name, turn in found]
    turns = list({str(turn) for _, turn in rows if turn is not None})
    for some in _batches([name for name, _ in rows]):
        _delete(session, FeedbackRow, col(FeedbackRow.feedback_id).in_(some))
    for some in _batches(turns):
        _delete(session, JudgementRow, col(JudgementRow.interaction_id).in_(some), col(JudgementRow.origin) == FEEDBACK)
        session.connection().execute(update(SampleRow).where(col(SampleRow.interaction_id).in_(some)).values(hint=None))
    settle(session, *_unspent(session, turns))
    return len(rows)


def drop_unused(session: Session) -> int:
    """Erase the texts that nothing uses any more. Returns how many. Reads the whole journal."""
    dialect = session.get_bind().dialect.name
    if dialect == "postgresql":  # nobody may begin to use one of them at this moment
        session.connection().execute(text("LOCK TABLE blob IN SHARE ROW EXCLUSIVE MODE"))
    return int(session.connection().execute(_DROP_UNUSED[dialect]).rowcount)


def trained_on(session: Session, names: Sequence[str]) -> set[VersionName]:
    """The versions, and the steps that may become versions, that used any of these turns."""
    found: set[VersionName] = set()
    for some in _batches(names):
        used = select(col(SampleRow.step_id)).where(
            col(SampleRow.interaction_id).in_(some), col(SampleRow.skipped).is_(None)
        )
        grouped = select(col(GroupSampleRow.step_id)).where(
            col(GroupSampleRow.interaction_id).in_(some), col(GroupSampleRow.skipped).is_(None)
        )
        steps = select(col(StepRow.agent), col(StepRow.version)).where(
            or_(col(StepRow.step_id).in_(used), col(StepRow.step_id).in_(grouped))
        )
        found |= {VersionName(str(agent), int(number)) for agent, number in session.connection().execute(steps)}
    return found


def _of(who: Who, tenant: Any, key: Any, user: Any) -> tuple[ColumnElement[bool], ...]:
    of_tenant, kind, name = who
    return (tenant == of_tenant, user == name) if kind == "user" else (tenant == of_tenant, user.is_(None), key == name)


def _forget_follower(session: Session, names: Sequence[str]) -> list[str]:
    """Take the words of these turns out of what came back to other turns. Returns those turns."""
    followed = (col(NextStateRow.follower_id).in_(names), col(NextStateRow.interaction_id).not_in(names))
    touched = list(session.scalars(select(col(NextStateRow.interaction_id)).where(*followed)))
    _delete(session, NextStateRow, *followed)
    for some in _batches(touched):
        of_words = (col(JudgementRow.interaction_id).in_(some), col(JudgementRow.origin) == NEXT_STATE)
        _delete(session, JudgementRow, *of_words)
        _delete(session, JudgeJob, col(JudgeJob.subject).in_([judge_subject(name, NEXT_STATE) for name in some]))
        session.connection().execute(update(SampleRow).where(col(SampleRow.interaction_id).in_(some)).values(hint=None))
    return touched


def _forget_sessions(session: Session, names: Sequence[str]) -> None:
    """Erase sessions without a turn, and the words of the others."""
    left = set(session.scalars(select(col(InteractionRow.session_id)).where(col(InteractionRow.session_id).in_(names))))
    empty = [name for name in names if name not in left]
    _delete(session, FeedbackRow, col(FeedbackRow.session_id).in_(empty))
    _delete(session, SessionRow, col(SessionRow.session_id).in_(empty))
    session.connection().execute(update(SessionRow).where(col(SessionRow.session_id).in_(left)).values(opening=""))


def _drop_jobs(session: Session, names: Sequence[str]) -> None:
    """Drop the jobs on turns. Whoever works on one loses the lease, and the result with it."""
    pairs = select(col(ComparisonRow.agent), col(ComparisonRow.version), col(ComparisonRow.interaction_id)).where(
        col(ComparisonRow.interaction_id).in_(names)
    )
    subjects: dict[type[JobRow], list[str]] = {
        JudgeJob: [judge_subject(name, origin) for name in names for origin in (NEXT_STATE, FEEDBACK)],
        RubricJob: list(names),
        ShadowJob: list(names),
        CompareJob: [
            f"{VersionName(agent, number)}|{name}" for agent, number, name in session.connection().execute(pairs)
        ],
    }
    for table, mine in subjects.items():
        for some in _batches(mine):
            _delete(session, table, col(table.subject).in_(some))


def _unspent(session: Session, names: Sequence[str]) -> list[str]:
    wanted = select(col(InteractionRow.interaction_id)).where(col(InteractionRow.spent_step).is_(None))
    return [
        name
        for some in _batches(names)
        for name in session.scalars(wanted.where(col(InteractionRow.interaction_id).in_(some)))
    ]


def _delete(session: Session, table: type[SQLModel], *where: ColumnElement[bool]) -> None:
    session.connection().execute(delete(table).where(*where))


def _n(session: Session, table: type[SQLModel], *where: ColumnElement[bool]) -> int:
    return int(session.connection().execute(select(func.count()).select_from(table).where(*where)).scalar_one())


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def _drop_unused(of_list: str) -> TextClause:
    lists = " UNION ".join(
        f"SELECT used.value FROM {table}, {of_list}({table}.message_digests) AS used"
        for table in ("interaction", "next_state")
    )
    singles = " UNION ".join(
        f"SELECT {column} FROM {table}"
        for table, column in (
            ("interaction", "reply_digest"),
            ("interaction", "tools_digest"),
            ("shadow", "reply_digest"),
            ("comparison", "candidate_digest"),
            ("comparison", "baseline_digest"),
        )
    )
    unused = f"SELECT digest FROM blob EXCEPT SELECT * FROM ({lists} UNION {singles}) AS everything"
    return text(f"DELETE FROM blob WHERE digest IN ({unused})")


_DROP_UNUSED = {"sqlite": _drop_unused("json_each"), "postgresql": _drop_unused("json_array_elements_text")}
