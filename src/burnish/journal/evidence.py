"""The evidence behind a turn's reward, from the records, and whether the turn is ready for the learner.

Turns are read together if possible: one statement for many turns costs little more than one for each.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import BindParameter, Select, bindparam, inspect, select, text
from sqlmodel import Session, col

from burnish.journal.blobs import MANY
from burnish.journal.tables import (
    FeedbackRow,
    InteractionRow,
    JudgeCheckRow,
    JudgeJob,
    JudgementRow,
    NextStateRow,
    SessionRow,
)
from burnish.journal.turns import RecordRow, feedback_of, judge_subject, judgement_of, right_reply_of, signal_of
from burnish.records import Feedback, Fitness, Judgement, NextStateKind, Reward, TargetKind
from burnish.rewards import FEEDBACK, NEXT_STATE, WORDS, Evidence, Verdict, compose, words_of


def evidence_of(session: Session, interaction_id: str) -> Evidence:
    """All records on one turn as they are now."""
    return evidence_of_all(session, [interaction_id])[interaction_id]


def evidence_of_all(session: Session, interaction_ids: Collection[str]) -> dict[str, Evidence]:
    """All records on each of several turns as they are now."""
    feedback = _by_turn(session, FeedbackRow, interaction_ids)
    came = _by_turn(session, NextStateRow, interaction_ids)
    judgements = _by_turn(session, JudgementRow, interaction_ids)
    on_session = _on_sessions(session, interaction_ids)
    found = {}
    for name in interaction_ids:
        said = [feedback_of(row) for row in feedback.get(name, ())]
        followed = came[name][0] if name in came else None
        is_reply = followed is not None and followed.kind == NextStateKind.USER_REPLY
        verdicts = [
            Verdict(row.judgement_id, row.origin, made, is_reply if row.origin == NEXT_STATE else _is_said(made, said))
            for row in judgements.get(name, ())
            for made in (judgement_of(row),)
        ]
        kind = NextStateKind(followed.kind) if followed is not None else None
        signals = [signal_of(tree) for tree in followed.signals] if followed is not None else []
        if name in on_session:
            step = int(session.connection().execute(_STEP, {"interaction": name}).scalar_one())
            alone = [f for f in said if f.about is not TargetKind.SESSION]
            found[name] = Evidence(alone, verdicts, kind, signals, [feedback_of(row) for row in on_session[name]], step)
        else:
            found[name] = Evidence(said, verdicts, kind, signals)
    return found


def reward_of(session: Session, interaction_id: str) -> Reward | None:
    """The effective reward by the records as they are now."""
    return compose(evidence_of(session, interaction_id)).reward


def settle(session: Session, *interaction_ids: str) -> None:
    """Mark turns as ready for the learner if their reward or a right reply is known and no judge job on them is
    open."""
    subjects = {judge_subject(name, origin): name for name in interaction_ids for origin in (NEXT_STATE, FEEDBACK)}
    is_open = {
        subjects[row[0]] for some in _batches(subjects) for row in session.connection().execute(_OPEN_JOBS, some)
    }
    evidence = evidence_of_all(session, [name for name in interaction_ids if name not in is_open])
    ready = {name for name, all_of_it in evidence.items() if _has_lesson(session, name, all_of_it)}
    for is_ready, names in ((True, ready), (False, set(interaction_ids) - ready)):
        for some in _batches(names):
            session.connection().execute(_SET_READY, some | {"ready": is_ready})


def _has_lesson(session: Session, interaction_id: str, evidence: Evidence) -> bool:
    effective = compose(evidence)
    if effective.withheld is not None:
        return False
    return effective.reward is not None or right_reply_of(session, interaction_id) is not None


def _is_said(made: Judgement, said: Sequence[Feedback]) -> bool:
    """True if a user's words stand behind a hint from feedback. A harness's words must not borrow the authority of a
    user's rating, and deleted words are no hint.
    """
    words = [text for f in said if (text := words_of(f))]
    return made.hint in words if made.judge_id.startswith(WORDS) else bool(words)


def _by_turn(
    session: Session, table: type[RecordRow], interaction_ids: Collection[str]
) -> Mapping[str, Sequence[RecordRow]]:
    """The turns' rows of `table` in the order of their making, as plain rows with its columns."""
    found = defaultdict[str, list[RecordRow]](list)
    for some in _batches(interaction_ids):
        for row in session.connection().execute(_rows_of(table), some):
            found[row.interaction_id].append(cast(RecordRow, row))
    return found


def _on_sessions(session: Session, interaction_ids: Collection[str]) -> Mapping[str, Sequence[FeedbackRow]]:
    """Feedback on whole sessions, by turn, for sessions that used tools."""
    found = defaultdict[str, list[FeedbackRow]](list)
    for some in _batches(interaction_ids):
        for row in session.connection().execute(_ON_SESSION, some):
            found[row.turn].append(cast(FeedbackRow, row))
    return found


def _batches(names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Parameters of statements on some of `names` each. Empty if there are none."""
    listed = list(names)
    for start in range(0, len(listed), MANY):
        yield {"names": listed[start : start + MANY]}


@lru_cache
def _rows_of(table: type[RecordRow]) -> Select[*tuple[Any, ...]]:
    """The statement, built once, because building costs more than running it. Verdicts of judges that may not speak are
    left out.
    """
    wanted = select(*inspect(table).columns).where(col(table.interaction_id).in_(_NAMES))
    if issubclass(table, JudgementRow):
        silent = (col(JudgeCheckRow.judge_id) == col(table.judge_id), col(JudgeCheckRow.state) != Fitness.FIT)
        wanted = wanted.where(~select(col(JudgeCheckRow.judge_id)).where(*silent).exists())
    return wanted.order_by(col(table.created_at))


_NAMES: BindParameter[Sequence[str]] = bindparam("names", expanding=True)
# Text, because SQLAlchemy's query building costs several times what running such a frequent statement does.
_OPEN_JOBS = text(
    f"SELECT subject FROM {JudgeJob.__tablename__} WHERE subject IN :names AND state IN ('queued', 'leased')"
).bindparams(_NAMES)
_SET_READY = text("UPDATE interaction SET is_ready = :ready WHERE interaction_id IN :names").bindparams(_NAMES)
_ON_SESSION: Select[*tuple[Any, ...]] = (
    select(col(InteractionRow.interaction_id).label("turn"), *inspect(FeedbackRow).columns)
    .join(SessionRow, col(SessionRow.session_id) == col(InteractionRow.session_id))
    .join(
        FeedbackRow,
        (col(FeedbackRow.session_id) == col(InteractionRow.session_id))
        & (col(FeedbackRow.about) == TargetKind.SESSION),
    )
    .where(col(InteractionRow.interaction_id).in_(_NAMES), col(SessionRow.has_tools).is_(True))
)
_STEP = text(
    "SELECT count(*) FROM interaction AS earlier JOIN interaction AS this ON earlier.session_id = this.session_id "
    "WHERE this.interaction_id = :interaction AND earlier.kind != 'side' AND earlier.choice = 0 "
    "AND earlier.started_at < this.started_at"
)
