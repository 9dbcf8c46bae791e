"""Erasure: what the journal holds of turns goes for good, and nothing else does. Each function is part of its caller's
transaction.

A text that is also part of another's turn stays as that turn's. What a step used stays as ids and numbers, without
words: so a version can always say what it was trained on.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, TextClause, delete, func, or_, select, text, update
from sqlmodel import Session, SQLModel, col

from burnish.journal import shadows
from burnish.journal.evidence import settle
from burnish.journal.hint_quorum import sentences
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
from burnish.journal.turns import feedback_of as feedback_in
from burnish.journal.turns import judge_subject
from burnish.records import TargetKind, VersionName, Who, digest_of_voice, id_without_words, who_of
from burnish.rewards import FEEDBACK, NEXT_STATE, WORDS, words_of

AT_ONCE = 500
"""Turns that one statement names."""
_Name = TypeVar("_Name", str, int)
_Voice = tuple[str, Who]
_SAME_TURN = col(InteractionRow.interaction_id) == col(ShadowGroupRow.interaction_id)
_PLACE = (
    col(FeedbackRow.feedback_id),
    col(FeedbackRow.interaction_id),
    col(FeedbackRow.session_id),
    col(FeedbackRow.about),
)
_OF_TURNS: tuple[type[Any], ...] = (JudgementRow, NextStateRow, FeedbackRow, ComparisonRow, ShadowRow, ShadowGroupRow)


@dataclass(slots=True)
class Erased:
    """What has gone. `touched` are other turns that had words of these in what came back to them. `groups` are other
    turns' shadow groups that were graded on such words.
    """

    turns: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    n_feedback: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """What steps learned from feedback: its `records`, the `turns` that it rewarded, and the `versions` that used
    them so.
    """

    records: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    versions: frozenset[VersionName] = frozenset()


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
    jobs. `drop_unused` then erases the texts and the parts of prompts.
    """
    gone = Erased(turns=list(names))
    voices: set[_Voice] = set()
    for some in _batches(names):
        gone.touched += _forget_follower(session, some)
        voices |= _voices(session, [*some, *gone.touched])
        sessions = list(
            session.scalars(
                select(col(InteractionRow.session_id)).where(col(InteractionRow.interaction_id).in_(some)).distinct()
            )
        )
        _drop_jobs(session, some)
        gone.n_feedback += _n(session, FeedbackRow, col(FeedbackRow.interaction_id).in_(some))
        for table in _OF_TURNS:
            _delete(session, table, col(table.interaction_id).in_(some))
        _forget_hints(session, some)
        _forget_ids(session, some)
        execute = session.connection().execute
        execute(update(InteractionRow).where(col(InteractionRow.parent_id).in_(some)).values(parent_id=None))
        _delete(session, InteractionRow, col(InteractionRow.interaction_id).in_(some))
        _forget_sessions(session, sessions)
    gone.groups = _forget_wishes(session, voices)
    settle(session, *_unspent(session, gone.touched))
    return gone


def erase_feedback(session: Session, *where: ColumnElement[bool]) -> Erased:
    """Erase feedback, and the hints and wishes in the same words. The rewards of unspent turns are worked out anew."""
    rows = session.connection().execute(select(*_PLACE).where(*where)).all()
    turns = list({row.interaction_id for row in rows if row.interaction_id is not None})
    near = _near(session, rows)
    for some in _batches([row.feedback_id for row in rows]):
        _delete(session, FeedbackRow, col(FeedbackRow.feedback_id).in_(some))
    voices: set[_Voice] = set()
    for some in _batches(turns):
        _forget_said(session, some)
        _forget_hints(session, some)
        voices |= _voices(session, some)
    for some in _batches(near):
        _forget_ids(session, some, {row.feedback_id for row in rows})
    groups = _forget_wishes(session, voices)
    settle(session, *_unspent(session, turns))
    return Erased(groups=groups, n_feedback=len(rows))


def drop_unused(session: Session) -> int:
    """Erase the texts and the parts of prompts that nothing uses any more. Returns how many texts. Reads the whole
    journal.
    """
    dialect, execute = session.get_bind().dialect.name, session.connection().execute
    if dialect == "postgresql":
        execute(text("SET LOCAL statement_timeout = 0"))
    execute(_DROP_UNUSED_PARTS[dialect])  # only the ingester stores parts, and it is what erases
    if dialect == "postgresql":  # nobody may begin to use one of the texts at this moment
        execute(text("LOCK TABLE blob IN SHARE ROW EXCLUSIVE MODE"))
    return int(execute(_DROP_UNUSED[dialect]).rowcount)


def trained_on(session: Session, names: Sequence[str], groups: Sequence[str] = ()) -> set[VersionName]:
    """The versions, and the steps that may become versions, that used any of these turns, or one of these `groups`."""
    steps: set[int] = set()
    for table, wanted in ((SampleRow, names), (GroupSampleRow, [*names, *groups])):
        for some in _batches(wanted):
            used = (col(table.interaction_id).in_(some), col(table.skipped).is_(None))
            steps |= set(session.scalars(select(col(table.step_id)).where(*used).distinct()))
    return _versions_of(session, steps)


def learned_from(session: Session, *where: ColumnElement[bool]) -> Learned:
    """What steps learned from feedback. Groups that were graded on its words are not among it: `erase_feedback` knows
    them.
    """
    has_words = or_(col(FeedbackRow.comment) != "", col(FeedbackRow.correction) != "")
    rows = session.connection().execute(select(*_PLACE).where(*where)).all()
    worded = session.scalars(
        select(col(FeedbackRow.interaction_id)).where(*where, has_words, col(FeedbackRow.interaction_id).is_not(None))
    )
    records = {row.feedback_id for row in rows}
    for some in _batches([name for name in worded if name is not None]):
        hints = (col(JudgementRow.interaction_id).in_(some), col(JudgementRow.origin) == FEEDBACK)
        records |= set(session.scalars(select(col(JudgementRow.judgement_id)).where(*hints)))
    turns: set[str] = set()
    steps: set[int] = set()
    for some in _batches(_near(session, rows)):
        used = (col(SampleRow.interaction_id).in_(some), col(SampleRow.skipped).is_(None))
        for sample in session.scalars(select(SampleRow).where(*used)):
            if not records.isdisjoint(sample.record_ids):
                turns.add(sample.interaction_id)
                steps.add(sample.step_id)
    return Learned(frozenset(records), frozenset(turns), frozenset(_versions_of(session, steps)))


def followed(session: Session, names: Sequence[str]) -> set[str]:
    """Other turns to which words of these came back."""
    found: set[str] = set()
    for some in _batches(names):
        found |= set(
            session.scalars(select(col(NextStateRow.interaction_id)).where(col(NextStateRow.follower_id).in_(some)))
        )
    return found - set(names)


def _versions_of(session: Session, steps: Collection[int]) -> set[VersionName]:
    found: set[VersionName] = set()
    for some in _batches(sorted(steps)):
        made = select(col(StepRow.agent), col(StepRow.version)).where(col(StepRow.step_id).in_(some))
        found |= {VersionName(str(agent), int(number)) for agent, number in session.connection().execute(made)}
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
        _forget_hints(session, some)
    return touched


def _forget_said(session: Session, names: Sequence[str]) -> None:
    """Erase the verdicts on feedback that is gone. A hint in the words of feedback that is left stays."""
    left = session.scalars(select(FeedbackRow).where(col(FeedbackRow.interaction_id).in_(names)))
    said = {(row.interaction_id, words_of(feedback_in(row))) for row in left}
    of_words = (col(JudgementRow.interaction_id).in_(names), col(JudgementRow.origin) == FEEDBACK)
    for row in session.scalars(select(JudgementRow).where(*of_words)).all():
        if not row.judge_id.startswith(WORDS) or (row.interaction_id, row.hint) not in said:
            session.delete(row)
    session.flush()
    _delete(session, JudgeJob, col(JudgeJob.subject).in_([judge_subject(name, FEEDBACK) for name in names]))


def _near(session: Session, rows: Sequence[Any]) -> list[str]:
    """The turns that this feedback may reward: the one that it is attached to, or all of its session."""
    found = {row.interaction_id for row in rows if row.interaction_id is not None}
    sessions = {row.session_id for row in rows if row.session_id is not None and row.about == TargetKind.SESSION}
    for some in _batches(sorted(sessions)):
        wanted = select(col(InteractionRow.interaction_id)).where(col(InteractionRow.session_id).in_(some))
        found |= set(session.scalars(wanted))
    return sorted(found)


def _forget_hints(session: Session, names: Sequence[str]) -> None:
    """Take the words out of what steps noted of these turns."""
    mine = col(SampleRow.interaction_id).in_(names)
    session.connection().execute(update(SampleRow).where(mine).values(hint=None))


def _forget_ids(session: Session, names: Sequence[str], gone: Collection[str] | None = None) -> None:
    """Take the words out of the ids of this feedback (None: of all) in what steps noted. Earlier versions stored an id
    as the client had chosen it.
    """
    for row in session.scalars(select(SampleRow).where(col(SampleRow.interaction_id).in_(names))):
        row.record_ids = [id_without_words(name) if gone is None or name in gone else name for name in row.record_ids]
    session.flush()


def _voices(session: Session, names: Sequence[str]) -> set[_Voice]:
    """The agents of these turns with their users, or with their keys without one."""
    voice = (col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))
    found: set[_Voice] = set()
    for some in _batches(names):
        wanted = select(col(InteractionRow.agent), *voice).where(col(InteractionRow.interaction_id).in_(some))
        rows = session.connection().execute(wanted.distinct())
        found |= {(agent, who_of(tenant, key_id, user)) for agent, tenant, key_id, user in rows}
    return found


def _forget_wishes(session: Session, voices: Collection[_Voice]) -> set[str]:
    """Take wishes out of the shadow groups of these voices that no hint on their turns says any more.

    Returns the groups that lost one. Those that no step has used are dropped.

    A wish holds the words of whoever spoke about the turn, and those may be another's.
    """
    changed = set()
    for agent, who in voices:
        mine = (col(InteractionRow.agent) == agent, *turns_of(who))
        groups = select(ShadowGroupRow).join(InteractionRow, _SAME_TURN).where(*mine, col(ShadowGroupRow.wish) != "")
        found = session.scalars(groups).all()
        if not found:
            continue
        hints = select(col(JudgementRow.hint)).join(
            InteractionRow, col(InteractionRow.interaction_id) == col(JudgementRow.interaction_id)
        )
        left = session.scalars(hints.where(*mine, col(JudgementRow.hint).is_not(None)))
        said = {part for hint in left for part in sentences(" ".join((hint or "").split()))}
        for row in found:
            lines = row.wish.split("\n")
            kept = [line for line in lines if said.issuperset(sentences(line))]
            if len(kept) < len(lines):
                row.wish, row.record_id = "\n".join(kept), None
                session.flush()
                shadows.drop(session, row.interaction_id, "erased")
                changed.add(row.interaction_id)
    return changed


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


def _batches(names: Sequence[_Name]) -> Iterator[Sequence[_Name]]:
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


def _drop_unused_parts(of_list: str) -> TextClause:
    used = f"SELECT used.value FROM interaction, {of_list}(interaction.prompt_parts) AS used"
    return text(f"DELETE FROM prompt_part WHERE digest IN (SELECT digest FROM prompt_part EXCEPT {used})")


_OF_LIST = {"sqlite": "json_each", "postgresql": "json_array_elements_text"}
_DROP_UNUSED = {dialect: _drop_unused(of_list) for dialect, of_list in _OF_LIST.items()}
_DROP_UNUSED_PARTS = {dialect: _drop_unused_parts(of_list) for dialect, of_list in _OF_LIST.items()}
