"""Recent messages: how a caller's conversations began and what their users said last.

A harness that asks for a title or a commit message on the side quotes one of these (server/ingest/turn_kind.py).
"""

from collections import OrderedDict
from collections.abc import Sequence

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.tables import SessionRow
from burnish.messages import text_of
from burnish.records import Interaction
from burnish.server.ingest.turn_kind import UserWords

RECENT = 600.0
"""Seconds back in which a side call is recognised."""
N_REMEMBERED = 512
N_CALLERS = 10_000
MAX_LENGTH = 300
Words = OrderedDict[str, tuple[UserWords, float]]


class Recent:
    """The messages of each caller (tenant and key), read from SQL once and kept up to date from then on."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, str], Words] = {}

    def forget(self) -> None:
        """Call after a rollback."""
        self._by.clear()

    def said(self, session: Session, turn: Interaction) -> Sequence[UserWords]:
        """The messages of the caller's recent conversations."""
        horizon = turn.started_at - RECENT
        return [said for said, at in self._of(session, turn).values() if at > horizon]

    def remember(self, session: Session, turn: Interaction, session_id: str, opening: str, head: str | None) -> None:
        """Note how a conversation began and what its user said last."""
        words = self._of(session, turn)
        words.setdefault(session_id, (UserWords.of(opening, head), turn.started_at))
        last = next((m for m in reversed(turn.messages) if m.get("role") == "user"), None)
        if last is not None:
            words[f"{session_id} last"] = (UserWords.of(text_of(last)[:MAX_LENGTH], head), turn.ended_at)
        while len(words) > N_REMEMBERED:
            words.popitem(last=False)

    def _of(self, session: Session, turn: Interaction) -> Words:
        who = (turn.tenant, turn.key_id)
        if who not in self._by:
            if len(self._by) >= N_CALLERS:
                self._by.clear()
            rows = session.connection().execute(
                select(
                    col(SessionRow.session_id),
                    col(SessionRow.opening),
                    col(SessionRow.head),
                    col(SessionRow.started_at),
                )
                .where(
                    col(SessionRow.tenant) == turn.tenant,
                    col(SessionRow.key_id) == turn.key_id,
                    col(SessionRow.last_at) > turn.started_at - RECENT,
                )
                .order_by(col(SessionRow.started_at).desc())
                .limit(N_REMEMBERED)
            )
            found = reversed(rows.all())
            self._by[who] = OrderedDict((row[0], (UserWords.of(row[1], row[2]), row[3])) for row in found)
        return self._by[who]
