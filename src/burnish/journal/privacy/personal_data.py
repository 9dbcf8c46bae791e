"""Everything that is stored of one voice, as plain values, for whoever asks what is known of them."""

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, SQLModel, col

from burnish.errors import SegmentError
from burnish.journal import Journal, story
from burnish.journal.privacy import erasure
from burnish.journal.tables import (
    AgentRow,
    AuditRow,
    ComparisonRow,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    KeyRow,
    OptOutRow,
    SegmentRow,
    SessionRow,
)
from burnish.journal.turns import messages_of
from burnish.records import Interaction, Who, digest_of_voice, who_of
from burnish.segments.file import aside_of, read

AT_ONCE = 50
"""Turns that are read in one transaction."""
Tree = dict[str, Any]
_OF_USERS: dict[str, type[Any]] = {"key": KeyRow, "personal agent": AgentRow}


def lines(journal: Journal, segments: Path, who: Who) -> Iterator[str]:
    """One JSON object a line."""
    return (json.dumps(item, ensure_ascii=False, default=str) + "\n" for item in items(journal, segments, who))


def items(journal: Journal, segments: Path, who: Who) -> Iterator[Tree]:
    """What is not in the journal yet, turns in full, the oldest first, then the voice's other feedback, sessions, keys,
    personal agents, opt-out and entries of the audit log.

    `what` names the kind of each.
    """
    yield from unfiled(journal, segments, who)
    mine = erasure.turns_of(who)
    with journal.read() as session:
        wanted = select(col(InteractionRow.interaction_id)).where(*mine).order_by(col(InteractionRow.ended_at))
        names = list(session.scalars(wanted))
    for start in range(0, len(names), AT_ONCE):
        with journal.read() as session:
            yield from [
                {"what": "turn", **_told(session, name)}
                for name in names[start : start + AT_ONCE]
                if session.get(InteractionRow, name) is not None
            ]
    with journal.read() as session:
        own = select(col(InteractionRow.interaction_id)).where(*mine)
        elsewhere = col(FeedbackRow.interaction_id).is_(None) | col(FeedbackRow.interaction_id).not_in(own)
        yield from _rows("feedback", session.scalars(select(FeedbackRow).where(*erasure.feedback_of(who), elsewhere)))
        held = select(col(InteractionRow.session_id)).where(*mine)
        yield from _rows("session", session.scalars(select(SessionRow).where(col(SessionRow.session_id).in_(held))))
        tenant, kind, name = who
        if kind == "user":
            for what, table in _OF_USERS.items():
                wanted = select(table).where(col(table.tenant) == tenant, col(table.user) == name)
                yield from _rows(what, session.scalars(wanted))
        opted_out = select(OptOutRow).where(col(OptOutRow.voice) == digest_of_voice(who))
        yield from _rows("opt-out", session.scalars(opted_out))
        keys = [name] if kind == "key" else _keys_of(session, tenant, name)
        names = [*keys, digest_of_voice(who), erasure.subject_of(who)]
        told = col(AuditRow.actor).in_(keys) | col(AuditRow.object).in_(names)
        yield from _rows("audit entry", session.scalars(select(AuditRow).where(told).order_by(col(AuditRow.audit_id))))


def unfiled(journal: Journal, segments: Path, who: Who) -> Iterator[Tree]:
    """Records of the voice that are on their way to the journal, or were set aside. `file` is below the segments."""
    with journal.read() as session:
        offsets = {row.name: row.offset for row in session.scalars(select(SegmentRow))}
    waiting = [(path, offsets.get(path.name, 0)) for path in sorted(segments.glob("*.seg"))]
    aside = [(path, 0) for path in sorted(aside_of(segments).glob("*.seg"))]
    for path, offset in (*waiting, *aside):
        with suppress(SegmentError, FileNotFoundError):  # a damaged end, or a file that was filed and removed meanwhile
            for record, _ in read(path, offset):
                if record is not None and who_of(record.tenant, record.key_id, record.user) == who:
                    what = "unfiled turn" if isinstance(record, Interaction) else "unfiled feedback"
                    plain = {name: value for name, value in asdict(record).items() if not isinstance(value, array)}
                    yield {"what": what, "file": str(path.relative_to(segments)), **plain}


def _keys_of(session: Session, tenant: str, user: str) -> list[str]:
    wanted = select(col(KeyRow.key_id)).where(col(KeyRow.tenant) == tenant, col(KeyRow.user) == user)
    return list(session.scalars(wanted))


def _told(session: Session, name: str) -> Tree:
    """A turn as `burnish turns show` tells it, and what is stored of it besides. Tokens and hashes are left out: they
    say nothing more.
    """
    row = session.get_one(InteractionRow, name)
    columns = ("request_id", "tenant", "key_id", "sampling", "started_at", "may_train", "upstream", "traceparent")
    pairs = session.scalars(select(ComparisonRow).where(col(ComparisonRow.interaction_id) == name))
    compared = [(pair, messages_of(session, [pair.candidate_digest, pair.baseline_digest])) for pair in pairs]
    grouped = select(GroupSampleRow).where(col(GroupSampleRow.interaction_id) == name)
    return (
        story.tell(session, name)
        | {"group_steps": [row.model_dump() for row in session.scalars(grouped)]}
        | {column: getattr(row, column) for column in columns}
        | {
            "tools": messages_of(session, [row.tools_digest])[0] if row.tools_digest else [],
            "comparisons": [{**pair.model_dump(), "replies": replies} for pair, replies in compared],
        }
    )


def _rows(what: str, rows: Any) -> Sequence[Tree]:
    found: list[SQLModel] = list(rows)
    return [{"what": what, **row.model_dump(mode="json", exclude={"digest"})} for row in found]
