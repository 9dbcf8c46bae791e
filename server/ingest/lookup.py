"""What a new turn belongs to: the reply that it continues, other tries of it, an earlier reply to the same words."""

from burnish.journal.linked_turns import LinkedTurn
from burnish.journal.tables.turns import OPTED_OUT_BEFORE
from burnish.journal.turns import OPTED_OUT
from burnish.records import LinkRule
from burnish.server.ingest.linking import Link, choose, likeness
from burnish.server.ingest.prepared import Prepared
from burnish.server.ingest.working_set import RETRY_WINDOW, WorkingSet
from burnish.session_names import rule_of

LIKE, ALIKE = 0.6, 0.8
"""The share of a reply that must be left in an edited one: in a known conversation, and in an unknown one."""


def tries_of(rows: WorkingSet, given: Prepared) -> list[LinkedTurn]:
    """Other tries of the same request that are certain.

    A try that was cut off is certain. A try that ended well is certain only if its conversation is known by name or by
    what it continues: of two strangers with the same opening, one may have been served while the other repeats.
    """
    same = rows.tries(given)
    if not same:
        return []
    turn = given.turn
    is_known = turn.quoted_session is not None or any(m.get("role") == "assistant" for m in turn.messages)
    followed = rows.followed(same) if is_known else set()
    return [t for t in same if t.is_aborted or (is_known and t.interaction_id not in followed)]


def find(rows: WorkingSet, given: Prepared) -> Link:
    """The reply that a turn continues, and the rule that found it (server/ingest/linking.py)."""
    quoted = rule_of(given.turn.quoted_by) or ("header" if given.turn.quoted_session else None)
    link, repeated = _recent(rows, given, quoted), given.trace.continuations()
    if repeated and (link is None or link.start < repeated[0][0]):
        kept_out = _kept_out(rows, given, quoted)
        if kept_out is not None and (link is None or kept_out.start > link.start):
            return kept_out
    return link or Link(LinkRule(quoted or LinkRule.NEW), None)


def _recent(rows: WorkingSet, given: Prepared, quoted: str | None) -> Link | None:
    """The reply of the last weeks that a turn continues."""
    turn, trace = given.turn, given.trace
    changed = trace.changed_continuation()
    for position, (start, prefix) in enumerate(trace.continuations()):
        if candidates := rows.candidates("tail_hash", prefix, turn):
            return choose(candidates, LinkRule(quoted or LinkRule.PREFIX), start)
        if (
            position == 0 and changed is not None
        ):  # the history before the last reply was changed, so this match is better than an older reply
            candidates = rows.candidates("suffix_hash", changed[1], turn)
            if candidates:
                return choose(candidates, LinkRule(quoted or LinkRule.SUFFIX), start)
    for start, words in trace.repeated_words():
        candidates = rows.candidates("words_hash", words, turn)
        if len({candidate.request_id for candidate in candidates}) == 1:
            return choose(candidates, LinkRule(quoted or LinkRule.SUFFIX), start)
    return _edited(rows, given, quoted)


def _kept_out(rows: WorkingSet, given: Prepared, quoted: str | None) -> Link | None:
    """The last reply that a turn repeats and that is kept out of training, however old it is. So an opt-out holds. Of
    several that are alike it is the latest.
    """
    trace = given.trace
    changed = trace.changed_continuation()
    asked = (
        ("tail_hash", trace.continuations(), LinkRule.PREFIX),
        ("suffix_hash", [changed] if changed is not None else [], LinkRule.SUFFIX),
    )
    for place, repeated, rule in asked:
        found = rows.kept_out(place, [value for _, value in repeated], given.turn)
        for start, value in repeated:
            if value in found:
                return Link(LinkRule(quoted or rule), found[value], start)
    return None


def _edited(rows: WorkingSet, given: Prepared, quoted: str | None) -> Link | None:
    """The reply to the request that the turn repeats with a changed reply, if only one fits."""
    turn, place = given.turn, given.trace.edited_continuation()
    if place is None:
        return None
    start, asked, repeated = place
    is_known = quoted is not None or any(m.get("role") == "assistant" for m in turn.messages[: start - 1])
    candidates = [c for c in rows.candidates("request_hash", asked, turn) if not c.has_follower]
    if not candidates or len({c.session_id for c in candidates}) > 1:
        return None  # strangers who asked the same
    turns = rows.turns([c.interaction_id for c in candidates])
    texts = rows.texts([turns[c.interaction_id].reply_digest for c in candidates])
    replies = dict(zip(candidates, texts, strict=True))
    best = max(candidates, key=lambda c: likeness(replies[c], repeated))
    if replies[best].get("tool_calls") or likeness(replies[best], repeated) < (LIKE if is_known else ALIKE):
        return None
    return Link(LinkRule(quoted or LinkRule.EDITED), best, start)


def earlier_reply(rows: WorkingSet, turn: LinkedTurn, request_hash: str) -> LinkedTurn | None:
    """The reply that the request of `turn` asks for again: the last one to the same words in its session."""
    same = [
        other
        for other, _ in rows.alike("request_hash", request_hash, turn)
        if other.session_id == turn.session_id
        and other.choice == 0
        and not other.is_aborted
        and turn.started_at - RETRY_WINDOW < other.started_at < turn.started_at
    ]
    return max(same, key=lambda other: other.started_at, default=None)


def is_opted_out(turn: LinkedTurn) -> bool:
    """True if a turn, or one before it, is kept out of training by its user's word."""
    return turn.skip_reason in (OPTED_OUT, OPTED_OUT_BEFORE) or (not turn.may_train and not turn.upstream)
