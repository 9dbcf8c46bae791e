"""What a new turn belongs to, from the journal: the reply that it continues, other tries of it, its conversation."""

import hashlib

from sqlalchemy import text
from sqlmodel import Session

from burnish.journal.tables import InteractionRow, SessionRow
from burnish.journal.turns import OPTED_OUT, messages_of
from burnish.records import Interaction, LinkRule
from burnish.server.ingest.linking import Candidate, Link, Trace, choose, likeness
from burnish.server.ingest.turn_kind import Conversation, Kind, Parent
from burnish.session_names import rule_of

OPTED_OUT_BEFORE = "opted out with an earlier turn"
"""The text of a turn that is kept out of training stands in the prompts of all turns after it."""
RETRY_WINDOW = 900.0
"""Seconds back in which a request with `x-stainless-retry-count` looks for the try that it repeats."""
LIKE, ALIKE = 0.6, 0.8
"""The share of a reply that must be left in an edited one: in a known conversation, and in an unknown one."""
MOST_ALIKE = 50
"""Replies alike that are looked at, the latest first. Of a thousand people with the same opening, the earlier ones have
gone on, or no longer will.
"""
# Text, because building such a query anew for each turn costs ten times what running it does.
_CANDIDATES = {
    place: text(
        "SELECT turn.interaction_id, turn.request_id, turn.session_id, turn.choice, EXISTS ("
        "SELECT 1 FROM interaction AS child WHERE child.parent_id = turn.interaction_id "
        f"AND child.request_id != :request AND child.kind != '{Kind.SIDE}'), conversation.closed_at, turn.ended_at "
        "FROM interaction AS turn JOIN session AS conversation ON conversation.session_id = turn.session_id "
        f"WHERE turn.{place} = :hash AND turn.request_id != :request ORDER BY turn.ended_at DESC LIMIT {MOST_ALIKE}"
    )
    for place in ("tail_hash", "suffix_hash", "words_hash", "request_hash")
}
_TRIES = text(
    "SELECT interaction_id FROM interaction WHERE request_hash = :hash AND request_id != :request AND retry != :retry "
    "AND ended_at > :since"
)
_FILED = text("SELECT 1 FROM interaction WHERE interaction_id = :interaction")
_FOLLOWER = text("SELECT 1 FROM interaction WHERE parent_id = :parent LIMIT 1")


def is_filed(session: Session, interaction_id: str) -> bool:
    """True if the journal has this reply."""
    return session.connection().execute(_FILED, {"interaction": interaction_id}).first() is not None


def tries_of(session: Session, turn: Interaction, trace: Trace) -> list[InteractionRow]:
    """Other tries of the same request that are certain.

    A try that was cut off is certain. A try that ended well is certain only if its conversation is known by name or by
    what it continues: of two strangers with the same opening, one may have been served while the other repeats.
    """
    since = turn.started_at - RETRY_WINDOW
    given = {"hash": trace.request, "request": turn.request_id, "retry": turn.retry, "since": since}
    found = session.connection().execute(_TRIES, given).scalars().all()
    same = [session.get_one(InteractionRow, name) for name in found]
    is_known = turn.quoted_session is not None or any(m.get("role") == "assistant" for m in turn.messages)
    return [row for row in same if row.is_aborted or (is_known and not has_follower(session, row))]


def has_follower(session: Session, row: InteractionRow) -> bool:
    return session.connection().execute(_FOLLOWER, {"parent": row.interaction_id}).first() is not None


def find(session: Session, turn: Interaction, trace: Trace) -> Link:
    """The reply that `turn` continues, and the rule that found it (server/ingest/linking.py)."""
    quoted = rule_of(turn.quoted_by) or ("header" if turn.quoted_session else None)
    places = trace.continuations()
    changed = trace.changed_continuation()
    for position, (start, prefix) in enumerate(places):
        if candidates := _candidates(session, "tail_hash", prefix, turn.request_id):
            return choose(candidates, LinkRule(quoted or LinkRule.PREFIX), start)
        if (
            position == 0 and changed is not None
        ):  # the history before the last reply was changed, so this match is better than an older reply
            candidates = _candidates(session, "suffix_hash", changed[1], turn.request_id)
            if candidates:
                return choose(candidates, LinkRule(quoted or LinkRule.SUFFIX), start)
    for start, words in trace.repeated_words():
        candidates = _candidates(session, "words_hash", words, turn.request_id)
        if len({candidate.request_id for candidate in candidates}) == 1:
            return choose(candidates, LinkRule(quoted or LinkRule.SUFFIX), start)
    return _edited(session, turn, trace, quoted) or Link(LinkRule(quoted or LinkRule.NEW), None)


def _edited(session: Session, turn: Interaction, trace: Trace, quoted: str | None) -> Link | None:
    """The reply to the request that the turn repeats with a changed reply, if only one fits."""
    place = trace.edited_continuation()
    if place is None:
        return None
    start, asked, repeated = place
    is_known = quoted is not None or any(m.get("role") == "assistant" for m in turn.messages[: start - 1])
    candidates = [c for c in _candidates(session, "request_hash", asked, turn.request_id) if not c.has_follower]
    if not candidates or len({c.session_id for c in candidates}) > 1:
        return None  # strangers who asked the same
    replies = {
        c: messages_of(session, [session.get_one(InteractionRow, c.interaction_id).reply_digest])[0] for c in candidates
    }
    best = max(candidates, key=lambda c: likeness(replies[c], repeated))
    if replies[best].get("tool_calls") or likeness(replies[best], repeated) < (LIKE if is_known else ALIKE):
        return None
    return Link(LinkRule(quoted or LinkRule.EDITED), best, start)


def _candidates(session: Session, place: str, value: str, request_id: str) -> list[Candidate]:
    """The latest replies with the hash `value` at `place`. Other choices of the same request are no followers."""
    rows = session.connection().execute(_CANDIDATES[place], {"hash": value, "request": request_id})
    return [Candidate(r[0], r[1], r[2], r[3], bool(r[4]), r[5] is not None, r[6]) for r in rows]


def parent_of(session: Session, link: Link) -> Parent | None:
    """The kind of the continued turn."""
    row = session.get(InteractionRow, link.parent.interaction_id) if link.parent else None
    return Parent(Kind(row.kind), row.tools_digest is not None) if row else None


def is_opted_out(session: Session, link: Link) -> bool:
    """True if the continued turn, or one before it, is kept out of training."""
    row = session.get(InteractionRow, link.parent.interaction_id) if link.parent else None
    return row is not None and (
        row.skip_reason in (OPTED_OUT, OPTED_OUT_BEFORE) or (not row.may_train and not row.upstream)
    )


def conversation_of(session: Session, turn: Interaction) -> Conversation | None:
    """The session that a turn names, if it has turns already."""
    row = session.get(SessionRow, quoted_id(turn)) if turn.quoted_session else None
    return Conversation(row.has_tools, row.head) if row else None


def quoted_id(turn: Interaction) -> str:
    """The session id for the name that a turn quotes. Names under different keys or of different users never meet."""
    asker = [turn.tenant, turn.key_id, *([turn.user] if turn.user else [])]
    return "q-" + hashlib.sha256("\0".join([*asker, str(turn.quoted_session)]).encode()).hexdigest()[:24]
