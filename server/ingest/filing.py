"""A record becomes rows: stored once, linked to the turn that it continues, and noted as that turn's next state.

Everything here happens in the ingester's transaction. The content of a record never changes. What was inferred from it
(its kind, whether it was only a try that its client repeated) can be corrected by a later record.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import structlog
from sqlalchemy import insert, select, update
from sqlmodel import Session, col

from burnish.journal import blobs
from burnish.journal.jobs import insert_new, insert_or_skip
from burnish.journal.tables import BlobRow, InteractionRow, SessionRow
from burnish.journal.turns import OPTED_OUT, messages_of, to_bytes
from burnish.messages import opening_of
from burnish.records import Interaction, LinkRule, NextStateKind
from burnish.server.ingest import feedback, lookup, turn_kind
from burnish.server.ingest.linking import Link
from burnish.server.ingest.lookup import OPTED_OUT_BEFORE
from burnish.server.ingest.next_state import NextStates, earlier_reply, note_last
from burnish.server.ingest.prepared import Blob, Prepared, head_of
from burnish.server.ingest.recent_messages import MAX_LENGTH, RECENT, Recent
from burnish.server.ingest.turn_kind import Kind, UserWords
from burnish.wire.redaction import REDACTED

log = structlog.get_logger(__name__)
SIDE = "side turn"
RETRIED = "retried by its client"
N_KNOWN_BLOBS = 50_000
_INSERT = insert(InteractionRow)


class Filing:
    """One per ingester. It remembers the blobs that it has stored, so that a long history costs no SQL for its old
    messages.
    """

    def __init__(self, verifiers: Collection[str] = ()) -> None:
        self._next_states = NextStates(verifiers)
        self._known: OrderedDict[str, None] = OrderedDict()
        self._recent = Recent()

    def take_interaction(self, session: Session, given: Prepared) -> None:
        """Store one reply that the journal does not have, and everything that follows from it."""
        turn, trace, head = given.turn, given.trace, given.head
        tries = lookup.tries_of(session, turn, trace)
        link = lookup.find(session, turn, trace)
        known = lookup.conversation_of(session, turn)
        parent = lookup.parent_of(session, link)
        is_lone = not turn.tools and parent is None and known is None
        what, reason = turn_kind.kind_of(turn, head, parent, known, self._recent.said(session, turn) if is_lone else ())
        session_id = self._session_of(session, turn, link, tries, head, what)
        inherited = lookup.is_opted_out(session, link)
        is_retried = any(row.retry > turn.retry for row in tries)
        self._store(session, [*given.messages, given.reply, *filter(None, [given.tools])])
        values: dict[str, Any] = dict(
            interaction_id=turn.interaction_id,
            request_id=turn.request_id,
            agent=turn.agent,
            version=turn.version,
            tenant=turn.tenant,
            key_id=turn.key_id,
            user=turn.user,
            quoted_user=turn.quoted_user,
            session_id=session_id,
            parent_id=link.parent.interaction_id if link.parent else None,
            link_rule=link.rule,
            turn_type=turn.turn_type,
            kind=what,
            kind_reason=reason,
            route=turn.route,
            quoted_by=turn.quoted_by,
            upstream=turn.upstream,
            retry=turn.retry,
            started_at=turn.started_at,
            ended_at=turn.ended_at,
            finish_reason=turn.finish_reason,
            sampling=asdict(turn.sampling),
            message_digests=[blob.digest for blob in given.messages],
            tools_digest=given.tools.digest if given.tools else None,
            reply_digest=given.reply.digest,
            n_behind=len(turn.messages) - link.start if link.parent else 0,
            request_hash=trace.request,
            tail_hash=trace.tail,
            suffix_hash=trace.suffix,
            words_hash=trace.words,
            prompt_ids=to_bytes(turn.prompt_ids),
            token_ids=to_bytes(turn.token_ids),
            logprobs=to_bytes(turn.logprobs),
            choice=turn.choice,
            n_choices=turn.n_choices,
            may_train=turn.may_train,
            is_aborted=turn.is_aborted,
            quarantine=turn.quarantine,
            skip_reason=RETRIED if is_retried else _skip_reason(turn, link, what, inherited),
            is_ready=False,
            spent_step=None,
        )
        if turn.quarantine not in (None, REDACTED) and not turn.is_aborted:
            log.warning("turn quarantined", interaction=turn.interaction_id, reason=turn.quarantine)
        session.connection().execute(_INSERT, values)
        row = cast(InteractionRow, SimpleNamespace(**values))  # the columns, at a fraction of a mapped row's cost
        for earlier in tries:
            if earlier.retry < turn.retry and earlier.skip_reason in (None, "aborted"):
                earlier.skip_reason = RETRIED
        if parent is not None and what is not Kind.SIDE and turn.choice == 0 and turn.may_train:
            self._follow(session, row)
        if what is not Kind.SIDE:
            self._correct_earlier(session, row, turn, head)
            self._note_regenerated(session, row, turn)
            if turn.is_session_done and turn.choice == 0:
                note_last(session, row, NextStateKind.SESSION_CLOSED)
        feedback.attach_waiting(session, row, turn.quoted_session)
        session.flush()  # the next record's queries must see this correction

    def forget(self) -> None:
        """Call after a rollback: what the transaction stored is not in the database."""
        self._known.clear()
        self._recent.forget()

    def _session_of(
        self, session: Session, turn: Interaction, link: Link, tries: list[InteractionRow], head: str | None, what: Kind
    ) -> str:
        if turn.quoted_session:
            session_id = lookup.quoted_id(turn)
        elif link.parent is not None:
            session_id = link.parent.session_id
        elif tries:
            session_id = tries[0].session_id
        else:
            session_id = f"s-{turn.request_id}"
        is_main = what is Kind.MAIN
        opening = blobs.storable(opening_of(turn.messages)[:MAX_LENGTH]) if is_main else ""
        is_new = insert_or_skip(
            session,
            SessionRow,
            {
                "session_id": session_id,
                "tenant": turn.tenant,
                "key_id": turn.key_id,
                "agent": turn.agent,
                "quoted_id": turn.quoted_session,
                "started_at": turn.started_at,
                "last_at": turn.ended_at,
                "closed_at": turn.ended_at if turn.is_session_done else None,
                "has_tools": bool(turn.tools),
                "head": head,
                "opening": opening,
            },
        )
        if is_main:
            self._recent.remember(session, turn, session_id, opening, head)
        if not is_new:
            values: dict[str, Any] = {"last_at": turn.ended_at}
            if turn.is_session_done:
                values["closed_at"] = turn.ended_at
            if is_main and turn.tools:
                values |= {"has_tools": True} if link.parent else {"has_tools": True, "head": head}
            session.connection().execute(
                update(SessionRow).where(col(SessionRow.session_id) == session_id).values(**values)
            )
        return session_id

    def _follow(self, session: Session, row: InteractionRow) -> None:
        """Note the next state of the parent. A parent that was taken for a side call and is continued was none."""
        parent = session.get(InteractionRow, row.parent_id)
        if parent is None:
            return
        if parent.kind == Kind.SIDE and turn_kind.declared_kind(parent.turn_type) is None:
            parent.kind, parent.kind_reason = Kind.MAIN, "was continued"
            parent.skip_reason = None if parent.skip_reason == SIDE else parent.skip_reason
            if parent.parent_id is not None and parent.choice == 0:
                self._follow(session, parent)
        if row.n_behind > 0:
            self._next_states.tell(session, parent, row)

    def _note_regenerated(self, session: Session, row: InteractionRow, turn: Interaction) -> None:
        """The last reply to the same words. If neither a name nor a history identifies the asker, two people may have
        asked alike.
        """
        is_known = turn.quoted_session is not None or row.parent_id is not None
        if not is_known or turn.retry or turn.choice or not turn.may_train or not turn.messages:
            return
        earlier = earlier_reply(session, row, lookup.RETRY_WINDOW)
        if earlier is not None and earlier.skip_reason != RETRIED and not lookup.has_follower(session, earlier):
            self._next_states.regenerated(session, earlier, row)

    def _correct_earlier(self, session: Session, row: InteractionRow, turn: Interaction, head: str | None) -> None:
        """Correct earlier side calls that this turn reveals: a session's title is often asked for first."""
        if row.parent_id is not None or not turn.tools:
            return
        earlier = select(InteractionRow).where(
            col(InteractionRow.key_id) == row.key_id,
            col(InteractionRow.tenant) == row.tenant,
            col(InteractionRow.kind) == Kind.MAIN,
            col(InteractionRow.turn_type).is_(None),
            col(InteractionRow.parent_id).is_(None),
            col(InteractionRow.tools_digest).is_(None),
            col(InteractionRow.ended_at) > row.started_at - RECENT,
            col(InteractionRow.interaction_id) != row.interaction_id,
        )
        said = [UserWords.of(opening_of(turn.messages)[:MAX_LENGTH], head)]
        for other in session.scalars(earlier.order_by(col(InteractionRow.ended_at).desc()).limit(20)).all():
            is_mate = bool(turn.quoted_session) and other.session_id == row.session_id
            if lookup.has_follower(session, other):
                continue
            if is_mate or self._asks_about(session, other, said):
                other.kind, other.kind_reason = Kind.SIDE, "no tools, while its session has them"
                other.skip_reason = other.skip_reason or SIDE

    @staticmethod
    def _asks_about(session: Session, row: InteractionRow, said: list[UserWords]) -> bool:
        messages = messages_of(session, row.message_digests)
        return turn_kind.is_about(messages, head_of(messages), said)

    def _store(self, session: Session, texts: list[Blob]) -> None:
        insert_new(session, BlobRow, [blob._asdict() for blob in texts if blob.digest not in self._known])
        for blob in texts:
            self._known[blob.digest] = None
            self._known.move_to_end(blob.digest)
        while len(self._known) > N_KNOWN_BLOBS:
            self._known.popitem(last=False)


def _skip_reason(turn: Interaction, link: Link, what: Kind, inherited: bool) -> str | None:
    """Why a turn can never be trained on, as far as ingestion knows. None if it may be."""
    if turn.upstream:
        return f"answered by {turn.upstream}"
    if turn.quarantine == REDACTED:
        return REDACTED
    if turn.quarantine:
        return f"quarantined: {turn.quarantine}"
    if not turn.may_train:
        return OPTED_OUT
    if inherited:
        return OPTED_OUT_BEFORE
    if turn.is_aborted:
        return "aborted"
    if link.rule is LinkRule.AMBIGUOUS:
        return "ambiguous session"
    if what is Kind.SIDE:
        return SIDE
    return None
