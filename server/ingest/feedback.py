"""Feedback is attached to its target: at once if the journal has it, later if its reply is still to come.

Everything here happens in the ingester's transaction: `take` and `attach_waiting` for each record, then `tell` once, so
that many records on one conversation cost no more than one. Of the feedback of one voice on one reply or session the
first `MOST_OF_A_VOICE` count. Of two records with one id the later one counts, in whatever
order they are read. A target of another tenant does not exist, nor a reply of an agent that the key may not use. A
proved user's feedback is about that user's own replies only.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import func, select, text, update
from sqlmodel import Session, col

from burnish.adapters.registry import audit
from burnish.adapters.registry.personal import family_of
from burnish.journal.evidence import settle
from burnish.journal.linked_turns import LinkedTurn
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgementRow, KeyRow, NextStateRow
from burnish.journal.turns import ask_judge, feedback_of, rows_of, signal_of, spare_judge
from burnish.records import Feedback, FeedbackSource, NextStateKind, TargetKind
from burnish.rewards import FEEDBACK, NEXT_STATE, environment_fault, needs_judge, words_of
from burnish.server.ingest import lookup
from burnish.server.ingest.prepared import Prepared, without_unstorable
from burnish.server.ingest.turn_kind import Kind
from burnish.server.ingest.working_set import WorkingSet

MOST_OF_A_VOICE = 64


@dataclass(slots=True)
class Told:
    """Turns whose feedback has changed: those whose judge jobs may change, and those whose rewards may."""

    consulted: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)

    def note(self, session: Session, about: TargetKind, interaction_id: str) -> None:
        """Feedback on this reply has changed. `about` says which turns it counts for."""
        if about is not TargetKind.SESSION:
            self.consulted.add(interaction_id)
        names = session.connection().execute(_COUNTS_FOR[about], {"interaction": interaction_id}).scalars()
        self.settled.update(names)


def take(session: Session, said: Feedback, told: Told) -> None:
    """Store feedback or delete an earlier one. Feedback on a reply that has not been read yet waits for it.

    The turns whose feedback changes are noted in `told`.
    """
    stored = session.get(FeedbackRow, said.feedback_id, populate_existing=True)
    if stored is None:
        before = None
        row = FeedbackRow(**asdict(said))
    else:
        if not _is_news(stored, said):
            return
        before = (TargetKind(stored.about), stored.interaction_id)
        row = stored
        # Deleted feedback stays readable.
        changes = (
            {"created_at": said.created_at, "is_deleted": True, "deleted_by": said.deleted_by}
            if said.is_deleted
            else asdict(said) | {"expired_at": None}
        )
        for name, value in changes.items():
            setattr(row, name, value)
    if not said.is_deleted:
        row.interaction_id = _target_of(session, said)
        row.session_id = _session_of(session, row.interaction_id)
        is_new_there = before is None or before[1] != row.interaction_id
        if row.interaction_id is not None and is_new_there and _has_said_enough(session, row):
            row.interaction_id, row.expired_at = None, said.created_at
    session.add(row)
    session.flush()
    if said.is_deleted and said.deleted_by is not None:
        _note_deletion(session, row, said.deleted_by)
    after = (TargetKind(row.about), row.interaction_id)
    for kind, met in {before or after, after}:
        if met is not None:
            told.note(session, kind, met)


def tell(session: Session, told: Told) -> None:
    """Update the turns that the feedback counts for: their judge jobs, and their rewards."""
    for name in sorted(told.consulted):
        _consult(session, name)
    if told.settled:
        settle(session, *sorted(told.settled))


def attach_waiting(session: Session, turn: LinkedTurn, quoted_session: str | None, told: Told) -> None:
    """Attach the waiting feedback to a reply that was just stored. What changes is noted in `told`."""
    names = {
        "response": turn.interaction_id,
        "turn": turn.request_id,
        "session": turn.session_id,
        "quoted": quoted_session or turn.session_id,
        "tenant": turn.tenant,
    }
    said = Counter[tuple[str, str, str | None]]()
    for feedback_id, about, target, key_id, user in session.connection().execute(_WAITING, names).all():
        is_meant = user in (None, turn.user) and _is_about(TargetKind(about), target, turn, quoted_session)
        if is_meant and _may_rate(session, key_id, turn.agent):
            said[about, key_id, user] += 1
            met: dict[str, Any] = {"interaction_id": turn.interaction_id, "session_id": turn.session_id}
            if said[about, key_id, user] > MOST_OF_A_VOICE:
                met = {"expired_at": turn.ended_at}
            session.connection().execute(
                update(FeedbackRow).where(col(FeedbackRow.feedback_id) == feedback_id).values(**met)
            )
            told.note(session, TargetKind(about), turn.interaction_id)


def said_in(rows: WorkingSet, given: Prepared) -> Feedback:
    """The feedback in a user's command, `/good` for example, on the reply that its conversation ends with.

    The reply is found as a next request's is. If the last reply is not known for certain, the feedback waits for a
    target that never comes: an older reply must not get its rating. Of several commands on one reply the last one
    counts.
    """
    turn = given.turn
    assert turn.remark is not None, "a record with a remark"
    link = lookup.find(rows, given)
    is_last = link.parent is not None and link.start == len(turn.messages)
    target = link.parent.interaction_id if link.parent is not None and is_last else turn.request_id
    rating = turn.remark["rating"]
    said = Feedback(
        feedback_id=f"{turn.remark['prefix']}said-{target}",
        target=target,
        tenant=turn.tenant,
        key_id=turn.key_id,
        source=FeedbackSource(turn.remark["source"]),
        created_at=turn.ended_at,
        rating=rating,
        comment=turn.remark["comment"],
        about=TargetKind.RESPONSE if is_last else TargetKind.TURN,
        user=turn.user,
        is_deleted=rating is None,
        deleted_by=turn.key_id if rating is None else None,
    )
    clean = without_unstorable(said)
    assert isinstance(clean, Feedback), "feedback stays feedback"
    return clean


def expire(session: Session, seconds: float) -> int:
    """Expire feedback that has waited longer than `seconds`. Returns how many. Expired feedback is never attached."""
    now = time.time()
    done = session.connection().execute(_EXPIRE, {"now": now, "horizon": now - seconds})
    return int(done.rowcount)


def _note_deletion(session: Session, row: FeedbackRow, key_id: str) -> None:
    """An entry in the audit log: which key deleted the feedback of which key, on which reply. It has no word of either
    user: a feedback's own id may.
    """
    turn = session.get(InteractionRow, row.interaction_id) if row.interaction_id is not None else None
    about = turn.interaction_id if turn is not None else "feedback without a reply"
    whose = {"tenant": row.tenant} if turn is None else {"agent": turn.agent}
    audit.record(session, key_id, "delete-feedback", about, f"of {row.key_id}", None, None, **whose)


def _is_news(stored: FeedbackRow, said: Feedback) -> bool:
    """True if `said` is later than the stored record. An expired record that is read again is not."""
    if stored.tenant != said.tenant or said.created_at < stored.created_at:
        return False
    return said.created_at > stored.created_at or (stored.expired_at is None and not stored.is_deleted)


def _target_of(session: Session, said: Feedback) -> str | None:
    """The reply that feedback is about: the first choice of a request, or the last main reply of a session so far."""
    given = {"target": said.target, "tenant": said.tenant, "user": said.user}
    found = session.connection().execute(_TARGETS[said.about], given).first()
    if found is None or not _may_rate(session, said.key_id, found.agent):
        return None
    return str(found.interaction_id)


def _may_rate(session: Session, key_id: str, agent: str) -> bool:
    """False if the key is limited to other agents. The gateway cannot check this, because it asks no database."""
    key = session.get(KeyRow, key_id)
    return key is None or not key.agents or not {agent, family_of(agent)}.isdisjoint(key.agents)


def _session_of(session: Session, interaction_id: str | None) -> str | None:
    row = session.get(InteractionRow, interaction_id) if interaction_id is not None else None
    return row.session_id if row is not None else None


def _is_about(about: TargetKind, target: str, turn: LinkedTurn, quoted_session: str | None) -> bool:
    match about:
        case TargetKind.RESPONSE:
            return bool(target == turn.interaction_id)
        case TargetKind.TURN:
            return bool(target == turn.request_id and turn.choice == 0)
        case TargetKind.SESSION:
            return target in (turn.session_id, quoted_session) and turn.kind == Kind.MAIN and turn.choice == 0


def _has_said_enough(session: Session, row: FeedbackRow) -> bool:
    """True if this voice has said `MOST_OF_A_VOICE` other things about the reply already, or about the session."""
    about = col(FeedbackRow.about) == row.about
    where = (
        col(FeedbackRow.session_id) == row.session_id
        if row.about == TargetKind.SESSION
        else col(FeedbackRow.interaction_id) == row.interaction_id
    )
    voice = (col(FeedbackRow.tenant) == row.tenant, col(FeedbackRow.key_id) == row.key_id)
    same = col(FeedbackRow.user).is_(None) if row.user is None else col(FeedbackRow.user) == row.user
    others = (where, about, *voice, same, col(FeedbackRow.feedback_id) != row.feedback_id)
    with session.no_autoflush:  # the row may be new
        return session.scalars(select(func.count()).where(*others)).one() >= MOST_OF_A_VOICE


def _consult(session: Session, interaction_id: str) -> None:
    """Queue the turn's judge jobs that are needed, and take back the others.

    A user's words become a hint, without a model. The next state is judged only without a user's or verifier's word, or
    for the hint to a dislike. If that word was deleted, the turn is judged after all.
    """
    turn = session.get(InteractionRow, interaction_id)
    if turn is None or turn.skip_reason is not None:
        return
    said = [feedback_of(row) for row in rows_of(session, FeedbackRow, interaction_id)]
    judged = rows_of(session, JudgementRow, interaction_id)
    words = [text for each in said if (text := words_of(each))]
    if not words:
        spare_judge(session, interaction_id, FEEDBACK)
    elif not any(row.origin == FEEDBACK and row.hint == words[-1] for row in judged):
        ask_judge(session, interaction_id, FEEDBACK, again=True)
    came = session.get(NextStateRow, interaction_id)
    if came is None or came.kind not in (NextStateKind.USER_REPLY, NextStateKind.TOOL_RESULT):
        return
    signals = [signal_of(tree) for tree in came.signals]
    if not needs_judge(said, signals, NextStateKind(came.kind)):
        spare_judge(session, interaction_id, NEXT_STATE)
    elif environment_fault(signals) is None and not any(row.origin == NEXT_STATE for row in judged):
        ask_judge(session, interaction_id, NEXT_STATE, again=True)


# Text, because SQLAlchemy's query building costs several times what running such a frequent statement does.
_OPEN = "interaction_id IS NULL AND expired_at IS NULL AND is_deleted = FALSE"
_WAITING = text(
    'SELECT feedback_id, about, target, key_id, "user" FROM feedback '
    f"WHERE target IN (:response, :turn, :session, :quoted) AND tenant = :tenant AND {_OPEN} ORDER BY created_at"
)
_OWN = '(CAST(:user AS VARCHAR) IS NULL OR turn."user" = :user)'
_EXPIRE = text(f"UPDATE feedback SET expired_at = :now WHERE {_OPEN} AND created_at < :horizon")
_TARGETS = {
    TargetKind.RESPONSE: text(
        "SELECT interaction_id, agent FROM interaction AS turn WHERE interaction_id = :target AND tenant = :tenant "
        f"AND {_OWN}"
    ),
    TargetKind.TURN: text(
        "SELECT interaction_id, agent FROM interaction AS turn "
        f"WHERE request_id = :target AND tenant = :tenant AND choice = 0 AND {_OWN} LIMIT 1"
    ),
    TargetKind.SESSION: text(
        "SELECT turn.interaction_id, turn.agent FROM session AS conversation "
        "JOIN interaction AS turn ON turn.session_id = conversation.session_id "
        "WHERE (conversation.session_id = :target OR conversation.quoted_id = :target) AND conversation.tenant = "
        ":tenant "
        f"AND turn.kind = '{Kind.MAIN}' AND turn.choice = 0 AND {_OWN} "
        "ORDER BY conversation.last_at DESC, turn.ended_at DESC LIMIT 1"
    ),
}
_UNSPENT = "SELECT interaction_id FROM interaction WHERE spent_step IS NULL AND"
_COUNTS_FOR = {
    TargetKind.RESPONSE: text(f"{_UNSPENT} interaction_id = :interaction"),
    **{
        kind: text(f"{_UNSPENT} {column} = (SELECT {column} FROM interaction WHERE interaction_id = :interaction)")
        for kind, column in ((TargetKind.TURN, "request_id"), (TargetKind.SESSION, "session_id"))
    },
}
