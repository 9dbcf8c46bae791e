"""The ingester: moves segments into SQL, once each, and links turns into conversations.

It reads all gateways' segments in the order in which their records ended, up to a watermark a moment in the past, so that
a reply is always ingested before the request that continues it. Interactions are keyed by id: reading a frame twice
changes nothing. A segment that cannot be read any further is marked, reported and left in place.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import exists, select, update
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from burnish.errors import SegmentError
from burnish.journal import Journal
from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import BlobRow, FeedbackRow, InteractionRow, NextStateRow, SegmentRow, SessionRow
from burnish.journal.turns import ask_judge, settle, to_bytes
from burnish.records import Feedback, FeedbackSource, Interaction, LinkRule, NextStateKind
from burnish.rewards import FEEDBACK, NEXT_STATE
from burnish.segments import Record, read
from server.linking import Candidate, Link, choose, continuations, tail_hash

log = structlog.get_logger()
SETTLE_SECONDS = 0.05
BATCH = 512
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Ingester:
    """One per journal. `run_once` reads what is there and says how many records it took."""

    def __init__(self, journal: Journal, folder: Path, *, session_ttl: float) -> None:
        self._journal = journal
        self._folder = folder
        self._session_ttl = session_ttl
        self._next_sweep = 0.0

    def run_once(self) -> int:
        """Ingest everything older than the watermark."""
        watermark = time.time() - SETTLE_SECONDS
        with self._journal.read() as session:
            cursors = {row.name: row for row in session.scalars(select(SegmentRow))}
        damaged: dict[str, SegmentError] = {}
        records = sorted(self._new_records(cursors, watermark, damaged), key=lambda item: item[0])
        for start in range(0, len(records), BATCH):
            with self._journal.write() as session:
                for _, name, offset, record in records[start : start + BATCH]:
                    self._take(session, record)
                    session.merge(SegmentRow(name=name, offset=offset))
        for name, error in damaged.items():  # only now: what stands before the damage has been taken
            self._mark_damaged(name, error)
        if time.time() >= self._next_sweep:
            self._close_idle()
            self._next_sweep = time.time() + min(60.0, self._session_ttl / 4)
        return len(records)

    def run_forever(self, poll_interval: float, is_stopping: Any) -> None:
        """Ingest until `is_stopping()`; an unreachable database is waited for, nothing is lost meanwhile."""
        while not is_stopping():
            try:
                n_taken = self.run_once()
            except OperationalError as error:
                log.warning("the journal does not answer; records wait in the segments", error=str(error.orig))
                time.sleep(2.0)
                continue
            if n_taken < BATCH:
                time.sleep(poll_interval)

    def _new_records(
        self, cursors: dict[str, SegmentRow], watermark: float, damaged: dict[str, SegmentError]
    ) -> Iterator[tuple[float, str, int, Record]]:
        """New records as (time, segment, offset behind it, record); times never fall within a segment: no cursor skips one.

        A segment with damage is noted in `damaged`.
        """
        for path in sorted(self._folder.glob("*.seg")):
            cursor = cursors.get(path.name)
            if cursor is not None and (cursor.error is not None or path.stat().st_size == cursor.offset):
                continue
            offset, latest = (cursor.offset if cursor else 0), 0.0
            try:
                for record, behind in read(path, offset):
                    latest = max(latest, _ended_at(record))
                    if latest >= watermark:
                        break
                    offset = behind
                    yield latest, path.name, offset, record
            except SegmentError as error:
                damaged[path.name] = error

    def _mark_damaged(self, name: str, error: SegmentError) -> None:
        log.error("a segment is damaged; its rest is left aside", segment=name, error=str(error))
        with self._journal.write() as session:
            row = session.get(SegmentRow, name) or SegmentRow(name=name, offset=0)
            row.error = str(error)
            session.add(row)

    def _take(self, session: Session, record: Record) -> None:
        """Store one record, or leave it aside: clients shape records, and none of them may stop the others."""
        record = _storable(record)
        try:
            with session.begin_nested():
                if isinstance(record, Feedback):
                    self._take_feedback(session, record)
                elif session.get(InteractionRow, record.interaction_id) is None:
                    self._take_interaction(session, record)
        except OperationalError:
            raise
        except Exception:
            name = record.feedback_id if isinstance(record, Feedback) else record.interaction_id
            log.exception("a record cannot be stored; it stays in its segment", record=name)

    def _take_interaction(self, session: Session, turn: Interaction) -> None:
        link, start = self._link(session, turn)
        session_id = self._session_of(session, turn, link)
        row = InteractionRow(
            interaction_id=turn.interaction_id,
            request_id=turn.request_id,
            agent=turn.agent,
            version=turn.version,
            tenant=turn.tenant,
            key_id=turn.key_id,
            user=turn.user,
            session_id=session_id,
            parent_id=link.parent.interaction_id if link.parent else None,
            link_rule=link.rule,
            turn_type=turn.turn_type,
            started_at=turn.started_at,
            ended_at=turn.ended_at,
            finish_reason=turn.finish_reason,
            sampling=asdict(turn.sampling),
            message_digests=[_store(session, message) for message in turn.messages],
            tools_digest=_store(session, list(turn.tools)) if turn.tools else None,
            reply_digest=_store(session, turn.reply),
            tail_hash=tail_hash(turn),
            prompt_ids=to_bytes(turn.prompt_ids),
            token_ids=to_bytes(turn.token_ids),
            logprobs=to_bytes(turn.logprobs),
            choice=turn.choice,
            n_choices=turn.n_choices,
            may_train=turn.may_train,
            is_aborted=turn.is_aborted,
            quarantine=turn.quarantine,
            fate=_fate(turn, link),
        )
        session.add(row)
        session.flush()
        if link.parent is not None and turn.choice == 0 and start < len(turn.messages):
            self._add_next_state(session, link.parent.interaction_id, turn, row.message_digests[start:])
        self._attach_feedback(session, turn.interaction_id)

    def _link(self, session: Session, turn: Interaction) -> tuple[Link, int]:
        for start, prefix in continuations(turn):
            candidates = self._candidates(session, prefix, turn.request_id)
            if candidates:
                return choose(candidates, turn.quoted_session), start
        return choose([], turn.quoted_session), 0

    def _candidates(self, session: Session, prefix: str, request_id: str) -> list[Candidate]:
        """Replies that the prefix matches; other choices of the request itself do not count as having followed."""
        child: Any = InteractionRow
        child = child.__table__.alias("child")
        turn: Any = InteractionRow
        conversation: Any = SessionRow
        has_follower = exists().where(child.c.parent_id == turn.interaction_id, child.c.request_id != request_id)
        rows = session.connection().execute(
            select(turn.interaction_id, turn.request_id, turn.session_id, turn.choice, has_follower, conversation.closed_at)
            .join(conversation, conversation.session_id == turn.session_id)
            .where(turn.tail_hash == prefix)
        )
        return [Candidate(r[0], r[1], r[2], r[3], bool(r[4]), r[5] is not None) for r in rows]

    def _session_of(self, session: Session, turn: Interaction, link: Link) -> str:
        if turn.quoted_session:
            session_id = "q-" + hashlib.sha256(f"{turn.tenant}\0{turn.key_id}\0{turn.quoted_session}".encode()).hexdigest()[:24]
        elif link.parent is not None:
            session_id = link.parent.session_id
        else:
            session_id = f"s-{turn.request_id}"
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
            },
        )
        if not is_new:
            columns: Any = SessionRow
            values: dict[str, Any] = {"last_at": turn.ended_at} | ({"closed_at": turn.ended_at} if turn.is_session_done else {})
            session.connection().execute(update(columns).where(columns.session_id == session_id).values(**values))
        return session_id

    def _add_next_state(self, session: Session, parent_id: str, turn: Interaction, digests: list[str]) -> None:
        # A hint is taken from users' own words only, and beside a tool's result nobody can tell whose words a hint repeats.
        roles = {message.get("role") for message in turn.messages[-len(digests) :]}
        is_from_user = "user" in roles and roles.isdisjoint({"tool", "function"})
        kind = NextStateKind.USER_REPLY if is_from_user else NextStateKind.TOOL_RESULT
        is_new = insert_or_skip(
            session,
            NextStateRow,
            {
                "interaction_id": parent_id,
                "kind": kind,
                "follower_id": turn.interaction_id,
                "message_digests": digests,
                "created_at": turn.started_at,
            },
        )
        parent = session.get(InteractionRow, parent_id)
        if is_new and parent is not None and parent.fate is None:
            ask_judge(session, parent_id, NEXT_STATE)
            settle(session, parent_id)

    def _take_feedback(self, session: Session, feedback: Feedback) -> None:
        target = session.get(InteractionRow, feedback.target)
        # An unknown target waits: the reply it names may stand in a segment that has not been read yet.
        is_theirs = target is not None and target.tenant == feedback.tenant
        session.merge(FeedbackRow(**asdict(feedback), interaction_id=feedback.target if is_theirs else None))
        session.flush()
        if is_theirs:
            self._react(session, feedback.target)

    def _attach_feedback(self, session: Session, interaction_id: str) -> None:
        columns: Any = FeedbackRow
        turn = session.get(InteractionRow, interaction_id)
        waiting = update(columns).where(
            columns.target == interaction_id,
            columns.interaction_id.is_(None),
            columns.tenant == (turn.tenant if turn else ""),
        )
        if session.connection().execute(waiting.values(interaction_id=interaction_id)).rowcount:
            self._react(session, interaction_id)

    def _react(self, session: Session, interaction_id: str) -> None:
        columns: Any = FeedbackRow
        words = select(columns.comment).where(
            columns.interaction_id == interaction_id, columns.comment != "", columns.source == FeedbackSource.USER
        )
        turn = session.get(InteractionRow, interaction_id)
        if turn is not None and turn.fate is None and session.connection().execute(words).first():
            ask_judge(session, interaction_id, FEEDBACK)
        settle(session, interaction_id)

    def _close_idle(self) -> None:
        columns: Any = SessionRow
        horizon = time.time() - self._session_ttl
        with self._journal.write() as session:
            idle = update(columns).where(columns.closed_at.is_(None), columns.last_at < horizon).values(closed_at=time.time())
            n_closed = session.connection().execute(idle).rowcount
        if n_closed:
            log.info("closed quiet conversations", n_sessions=n_closed)


def _fate(turn: Interaction, link: Link) -> str | None:
    """Why a turn can never be trained, known at ingestion; None where it may be."""
    if turn.quarantine:
        return f"quarantined: {turn.quarantine}"
    if not turn.may_train:
        return "opted out"
    if turn.is_aborted:
        return "aborted"
    if link.rule is LinkRule.AMBIGUOUS:
        return "ambiguous session"
    if (turn.turn_type or "main") != "main":
        return "side turn"
    return None


def _ended_at(record: Record) -> float:
    return record.ended_at if isinstance(record, Interaction) else record.created_at


def _storable(record: Record) -> Record:
    """`record` without what no text column holds: NUL, which PostgreSQL refuses, and halves of surrogate pairs."""
    texts = {name: value for name in record.__dataclass_fields__ if isinstance(value := getattr(record, name), str)}
    changed: dict[str, Any] = {
        name: clean for name, text in texts.items() if (clean := _UNSTORABLE.sub("\ufffd", text)) != text
    }
    return replace(record, **changed) if changed else record


def _store(session: Session, value: Any) -> str:
    body = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    insert_or_skip(session, BlobRow, {"digest": digest, "body": body})
    return digest
