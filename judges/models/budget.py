"""The budget of votes per day: counted from the stored verdicts, for all judging processes together."""

import time
from collections.abc import Callable

from sqlalchemy import select
from sqlmodel import col

from burnish.journal import Journal
from burnish.journal.tables import JudgementRow

DAY = 86_400.0
REFRESH = 5.0
"""Seconds between two reads of what others have spent."""
OVERLAP = 120.0
"""Seconds within which a verdict is stored after it was made."""


class Budget:
    """`max_votes_per_day` votes for each day (UTC), 0 for no limit."""

    def __init__(self, journal: Journal, max_votes_per_day: int, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._max_votes_per_day = max_votes_per_day
        self._clock = clock
        self._day = -1
        self._n_spent = 0
        self._counted_until = 0.0
        self._counted: set[str] = set()
        self._refreshed_at = 0.0

    def turns_left(self, votes: int, n_running: int, wanted: int) -> int:
        """How many of `wanted` turns, at `votes` votes each, may be started beside the `n_running` ones."""
        if not self._max_votes_per_day or not wanted:
            return wanted
        self._refresh()
        return max(0, min(wanted, (self._max_votes_per_day - self._n_spent) // votes - n_running))

    def note(self) -> None:
        """Verdicts have been stored: read the count again before the next turn."""
        self._refreshed_at = 0.0

    @property
    def seconds_to_tomorrow(self) -> float:
        return DAY - self._clock() % DAY

    def _refresh(self) -> None:
        now = self._clock()
        today = int(now // DAY)
        if today != self._day:
            self._day, self._n_spent, self._counted_until, self._refreshed_at = today, 0, today * DAY, 0.0
            self._counted = set()
        if now - self._refreshed_at < REFRESH:
            return
        self._refreshed_at = now
        since = max(today * DAY, self._counted_until - OVERLAP)
        wanted = select(
            col(JudgementRow.judgement_id),
            col(JudgementRow.votes),
            col(JudgementRow.n_failed),
            col(JudgementRow.created_at),
        ).where(col(JudgementRow.created_at) >= since)
        with self._journal.read() as session:
            rows = session.connection().execute(wanted).all()
        self._n_spent += sum(len(row.votes) + row.n_failed for row in rows if row.judgement_id not in self._counted)
        self._counted = {row.judgement_id for row in rows}
        self._counted_until = max([self._counted_until, *(row.created_at for row in rows)])
