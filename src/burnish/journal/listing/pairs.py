"""Prompts that a version answered otherwise than the version it was compared with, with both replies."""

from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.tables import ComparisonRow, InteractionRow
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
