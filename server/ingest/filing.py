"""A record becomes rows: stored once, linked to the turn that it continues, and noted as that turn's next state.

Everything here happens in the ingester's transaction. The content of a record never changes. What was inferred from it
(its kind, whether it was only a try that its client repeated) can be corrected by a later record.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

import structlog
from sqlmodel import Session

from burnish.journal import blobs
from burnish.journal.linked_turns import LinkedTurn
from burnish.journal.tables.turns import OPTED_OUT_BEFORE
from burnish.journal.turns import OPTED_OUT
from burnish.messages import opening_of
from burnish.records import Feedback, Interaction, LinkRule, NextStateKind
from burnish.server.ingest import feedback, lookup, turn_kind
from burnish.server.ingest.linking import Link
from burnish.server.ingest.next_state import NextStates
from burnish.server.ingest.opened_sessions import Opened
from burnish.server.ingest.prepared import Prepared, Stored, head_of, turn_of
from burnish.server.ingest.recent_messages import MAX_LENGTH, Recent
from burnish.server.ingest.turn_kind import Kind, Parent, UserWords
from burnish.server.ingest.working_set import WorkingSet
from burnish.wire.redaction import REDACTED

log = structlog.get_logger(__name__)
SIDE = "side turn"
RETRIED = "retried by its client"


class Filing:
    """One per ingester. In each transaction: `begin`, then `take_interaction` or `take_feedback` for each record, then
    `finish`.
    """

    def __init__(self, verifiers: Collection[str] = ()) -> None:
        self._next_states = NextStates(verifiers)
        self._recent = Recent()
        self._rows: WorkingSet | None = None
        self._coming: deque[Prepared] = deque()
        self._n_ahead = 1
        self._n_loaded = 0
        self._told = feedback.Told()

    def begin(self, turns: Iterable[Prepared]) -> None:
        """`turns` will be filed in this transaction, in this order."""
        self._rows = None
        self._told = feedback.Told()
        self._coming = deque(turns)
        self._n_ahead = max(1, len(self._coming))
        self._n_loaded = 0

    def take_interaction(self, session: Session, given: Prepared) -> bool:
        """File one reply, and everything that follows from it. False if the journal has it already."""
        rows = self._rows_for(session, given)
        if rows.is_filed(given.turn.interaction_id):
            return False
        turn = self._link(rows, given)
        if rows.is_awaited(turn, given.turn.quoted_session):
            self.store()
            feedback.attach_waiting(session, turn, given.turn.quoted_session, self._told)
        return True

    def take_feedback(self, session: Session, given: Feedback | Prepared) -> None:
        """File feedback, or a user's command that is some (`feedback.said_in`)."""
        self.store()
        said = given if isinstance(given, Feedback) else feedback.said_in(WorkingSet(session), given)
        feedback.take(session, said, self._told)

    def finish(self, session: Session) -> None:
        """Store what was filed, and what follows from the feedback."""
        self.store()
        feedback.tell(session, self._told)

    def store(self) -> None:
        """Store what was filed. Before SQL reads or changes turns by itself, this must be done."""
        if self._rows is not None:
            self._rows.store()
            self._rows.session.expire_all()  # what its objects hold may have been changed
            self._rows, self._n_ahead, self._n_loaded = None, 1, 0

    def forget(self) -> None:
        """Call after a rollback: what the transaction stored is not in the database."""
        self._rows = None
        self._recent.forget()

    def _rows_for(self, session: Session, given: Prepared) -> WorkingSet:
        """The working set, with what `given` asks for. After each interruption it looks fewer turns ahead."""
        if self._rows is None:
            self._rows = WorkingSet(session)
        if self._n_loaded == 0:
            coming = [each for each, _ in zip(self._coming, range(self._n_ahead), strict=False)] or [given]
            self._rows.expect(coming)
            self._n_loaded, self._n_ahead = len(coming), 2 * self._n_ahead
        if self._coming:
            self._coming.popleft()
        self._n_loaded -= 1
        return self._rows

    def _link(self, rows: WorkingSet, given: Prepared) -> LinkedTurn:
        """The new turn in the working set, with all that follows from it."""
        record, trace, head = given.turn, given.trace, given.head
        tries = lookup.tries_of(rows, given)
        link = lookup.find(rows, given)
        known = rows.known(given.session_id) if given.session_id is not None else None
        before = rows.turn(link.parent.interaction_id) if link.parent else None
        parent = Parent(Kind(before.kind), before.tools_digest is not None) if before else None
        is_lone = not record.tools and parent is None and known is None
        said = self._recent.said(rows.session, record) if is_lone else ()
        kind, reason = turn_kind.kind_of(record, head, parent, known, said)
        stored = Stored.of(given, before)
        turn = turn_of(
            given,
            stored,
            session_id=self._session_of(rows, given, link, tries, kind),
            parent_id=link.parent.interaction_id if link.parent else None,
            kind=kind.value,
            kind_reason=reason,
            n_behind=len(record.messages) - link.start if link.parent else 0,
            skip_reason=RETRIED
            if any(other.retry > record.retry for other in tries)
            else _skip_reason(record, link, kind, before is not None and lookup.is_opted_out(before)),
        )
        if record.quarantine not in (None, REDACTED) and not record.is_aborted:
            log.warning("turn quarantined", interaction=record.interaction_id, reason=record.quarantine)
        rows.add(turn, given, stored, link.rule.value)
        for earlier in tries:
            if earlier.retry < record.retry and earlier.skip_reason in (None, "aborted"):
                rows.skip(earlier, RETRIED)
        if before is not None and kind is not Kind.SIDE and record.choice == 0 and turn.may_train:
            self._follow(rows, before, turn, given)
        if kind is not Kind.SIDE:
            self._correct_earlier(rows, turn, given)
            self._note_regenerated(rows, turn, record, trace.request)
            if record.is_session_done and record.choice == 0:
                rows.note_next(turn, NextStateKind.SESSION_CLOSED, None, record.ended_at)
        if kind is Kind.MAIN and turn.parent_id is None and not record.tools and record.turn_type is None:
            self._recent.remember_lone(rows.session, record)
        return turn

    def _session_of(
        self, rows: WorkingSet, given: Prepared, link: Link, tries: Sequence[LinkedTurn], kind: Kind
    ) -> str:
        turn = given.turn
        if given.session_id is not None:
            session_id = given.session_id
        elif link.parent is not None:
            session_id = link.parent.session_id
        elif tries:
            session_id = tries[0].session_id
        else:
            session_id = f"s-{turn.request_id}"
        is_main = kind is Kind.MAIN
        opening = blobs.storable(opening_of(turn.messages)[:MAX_LENGTH]) if is_main else ""
        opened = Opened(
            session_id=session_id,
            tenant=turn.tenant,
            key_id=turn.key_id,
            agent=turn.agent,
            quoted_id=turn.quoted_session,
            started_at=turn.started_at,
            last_at=turn.ended_at,
            closed_at=turn.ended_at if turn.is_session_done else None,
            has_tools=bool(turn.tools),
            head=given.head,
            opening=opening,
        )
        rows.open(opened, is_main=is_main, has_parent=link.parent is not None)
        if is_main:
            self._recent.remember(rows.session, turn, session_id, opening, given.head)
        return session_id

    def _follow(self, rows: WorkingSet, parent: LinkedTurn, turn: LinkedTurn, given: Prepared | None) -> None:
        """Note the next state of the parent. A parent that was taken for a side call and is continued was none.

        `given` is the record of `turn` if it is at hand.
        """
        if parent.kind == Kind.SIDE and turn_kind.declared_kind(parent.turn_type) is None:
            rows.correct(parent, Kind.MAIN, "was continued", None if parent.skip_reason == SIDE else parent.skip_reason)
            before = rows.turn(parent.parent_id) if parent.parent_id is not None else None
            if before is not None and parent.choice == 0:
                self._follow(rows, before, parent, None)
        if turn.n_behind > 0:
            self._next_states.tell(rows, parent, turn, given)

    def _note_regenerated(self, rows: WorkingSet, turn: LinkedTurn, record: Interaction, request_hash: str) -> None:
        """The last reply to the same words. If neither a name nor a history identifies the asker, two people may have
        asked alike.
        """
        is_known = record.quoted_session is not None or turn.parent_id is not None
        if not is_known or record.retry or record.choice or not turn.may_train or not record.messages:
            return
        earlier = lookup.earlier_reply(rows, turn, request_hash)
        if earlier is not None and earlier.skip_reason != RETRIED and not rows.followed([earlier]):
            self._next_states.regenerated(rows, earlier, turn)

    def _correct_earlier(self, rows: WorkingSet, turn: LinkedTurn, given: Prepared) -> None:
        """Correct earlier side calls that this turn reveals: a session's title is often asked for first."""
        record = given.turn
        if turn.parent_id is not None or not record.tools:
            return
        names = self._recent.lone(rows.session, record)
        others = [other for other in rows.turns(names).values() if other.kind == Kind.MAIN]
        followed = rows.followed(others)
        said = [UserWords.of(opening_of(record.messages)[:MAX_LENGTH], given.head)]
        for other in others:
            if other.interaction_id in followed:
                continue
            is_mate = bool(record.quoted_session) and other.session_id == turn.session_id
            if is_mate or self._asks_about(rows, other, said):
                rows.correct(other, Kind.SIDE, "no tools, while its session has them", other.skip_reason or SIDE)

    @staticmethod
    def _asks_about(rows: WorkingSet, turn: LinkedTurn, said: list[UserWords]) -> bool:
        messages = rows.texts(turn.message_digests)
        return turn_kind.is_about(messages, head_of(messages), said)


def _skip_reason(turn: Interaction, link: Link, kind: Kind, inherited: bool) -> str | None:
    """Why a turn can never be trained on, as far as ingestion knows. None if it may be."""
    if inherited:  # it comes first, because the next turn reads it here
        return OPTED_OUT_BEFORE
    if turn.upstream and turn.may_train:
        return f"answered by {turn.upstream}"
    if turn.quarantine == REDACTED:
        return REDACTED
    if turn.quarantine:
        return f"quarantined: {turn.quarantine}"
    if not turn.may_train:
        return OPTED_OUT
    if turn.is_aborted:
        return "aborted"
    if link.rule is LinkRule.AMBIGUOUS:
        return "ambiguous session"
    if kind is Kind.SIDE:
        return SIDE
    return None
