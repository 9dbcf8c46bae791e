"""Prompts that a version answered otherwise than the version it was compared with, with both replies, and how people
voted between versions.
"""

from collections import defaultdict
from typing import Any

from sqlalchemy import literal_column, select
from sqlmodel import Session, col

from burnish.journal.listing import LOOKS
from burnish.journal.listing.figures import share
from burnish.journal.tables import ComparisonRow, FeedbackRow, InteractionRow
from burnish.journal.tables.turns import WEEK
from burnish.journal.turns import blobs_of
from burnish.messages import text_of

Tree = dict[str, Any]
SHOWN = 1500
"""Characters of a text that are shown."""
WORDS = {1: "won", -1: "lost", 0: "tied", None: "undecided"}
_NAMES = {word: outcome for outcome, word in WORDS.items()}


def pairs(session: Session, agent: str, version: int, *, outcome: str | None, limit: int) -> list[Tree]:
    """Up to `limit` pairs with different replies: lost ones first, then won, undecided and tied ones. `outcome` names
    one of `WORDS`, and only those.
    """
    mine = (
        col(ComparisonRow.agent) == agent,
        col(ComparisonRow.version) == version,
        col(ComparisonRow.candidate_digest) != col(ComparisonRow.baseline_digest),
    )
    rows = session.connection().execute(
        select(
            col(ComparisonRow.interaction_id),
            col(ComparisonRow.outcome),
            col(ComparisonRow.reason),
            col(ComparisonRow.baseline),
            col(ComparisonRow.candidate_digest),
            col(ComparisonRow.baseline_digest),
        ).where(*mine)
    )
    found = [row for row in rows.tuples() if outcome is None or row[1] == _NAMES[outcome]]
    rank = {-1: 0, 1: 1, None: 2, 0: 3}
    found = sorted(found, key=lambda row: (rank[row[1]], row[0]))[:limit]
    names = [row[0] for row in found]
    asked: dict[str, list[str]] = dict(
        session.connection()
        .execute(
            select(col(InteractionRow.interaction_id), col(InteractionRow.message_digests)).where(
                col(InteractionRow.interaction_id).in_(names)
            )
        )
        .tuples()
        .all()
    )
    digests = {digest for row in found for digest in (row[4], row[5], *asked.get(row[0], [])[-1:])}
    texts = {digest: text_of(message)[:SHOWN] for digest, message in blobs_of(session, digests).items()}
    return [
        {
            "turn": name,
            "outcome": WORDS[said],
            "reason": reason,
            "baseline": baseline,
            "prompt": next((texts[digest] for digest in asked.get(name, [])[-1:]), ""),
            "reply": texts[new],
            "baseline_reply": texts[old],
        }
        for name, said, reason, baseline, new, old in found
    ]


def votes(session: Session, agent: str, tenant: str, version: int) -> list[Tree]:
    """How people voted between `version` and each other one: `n` votes, the share that it won, and its 95 % bounds.

    A vote says that one reply would have been right in place of another: it corrects the worse one with the better
    one's text, and both answer the same request, at most a week apart. Ties are none. The latest `LOOKS` pieces of
    feedback count.
    """
    said = _corrections(session, tenant)
    week: Any = literal_column(WEEK.format("interaction.ended_at"))
    columns = (InteractionRow.interaction_id, InteractionRow.version, InteractionRow.request_hash)
    corrected = select(*map(col, columns), col(InteractionRow.agent), week.label("week")).where(
        col(InteractionRow.interaction_id).in_(list(said))
    )
    worse: Any = [row for row in session.connection().execute(corrected) if row.agent == agent and row.request_hash]
    weeks = {row.week + step for row in worse for step in (-1, 0, 1)}
    # the week and the hash alone: with the agent as a condition, SQLite walks over all of its turns
    others: Any = session.connection().execute(
        select(*map(col, columns), col(InteractionRow.agent), col(InteractionRow.reply_digest))
        .where(week.in_(weeks), col(InteractionRow.request_hash).in_({row.request_hash for row in worse}))
        .limit(2 * LOOKS)
    )
    alike: dict[str, list[Any]] = defaultdict(list)
    for row in others:
        if row.agent == agent:
            alike[row.request_hash].append(row)
    texts = blobs_of(session, {row.reply_digest for rows in alike.values() for row in rows})
    tallies: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in worse:
        for better in alike[row.request_hash]:
            pair = (better.version, row.version)
            is_it = text_of(texts[better.reply_digest]).strip() == said[row.interaction_id]
            if is_it and version in pair and pair[0] != pair[1]:
                is_lost = pair[1] == version
                tallies[pair[0] if is_lost else pair[1]][is_lost] += 1
                break
    return [{"baseline": other, **share(*counts)} for other, counts in sorted(tallies.items(), reverse=True)]


def _corrections(session: Session, tenant: str) -> dict[str, str]:
    """The latest correction of each reply among the latest feedback."""
    columns = (FeedbackRow.interaction_id, FeedbackRow.correction, FeedbackRow.is_deleted)
    latest = select(*map(col, columns)).where(col(FeedbackRow.tenant) == tenant)
    newest_first = latest.order_by(col(FeedbackRow.created_at).desc(), col(FeedbackRow.feedback_id).desc())
    rows: Any = session.connection().execute(newest_first.limit(LOOKS))
    found: dict[str, str] = {}
    for name, text, is_deleted in rows:
        if name is not None and text and not is_deleted:
            found.setdefault(name, text.strip())
    return found
