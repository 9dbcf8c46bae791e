"""What the judges of one process cost: added up in memory, and added to the journal every two seconds.

A judgement never waits for it. A process that is killed loses the sums of its last seconds.
"""

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from burnish.adapters.registry.personal import family_of
from burnish.journal import Journal
from burnish.journal.outage import repeat
from burnish.journal.tables import JudgeCostRow
from burnish.judges.judge import Usage
from burnish.judges.models.panel import Charge
from burnish.records import JudgedFor

EVERY = 2.0
"""Seconds between two writes."""
_COUNTS = ("n_requests", "n_votes", "n_prompt_tokens", "n_answer_tokens", "seconds")
Account = tuple[str, str, str, str]
"""A day (UTC), an agent, a judging model, and what it was asked for."""


class Costs:
    """One per process. A personal agent counts as its parent."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._clock = clock
        self._sums: dict[Account, Usage] = {}

    def charge_for(self, purpose: JudgedFor) -> Charge:
        """What a panel calls after each question that it asks for `purpose`."""
        return partial(self._add, purpose)

    def _add(self, purpose: JudgedFor, agent: str, model: str, usage: Usage) -> None:
        day = time.strftime("%Y-%m-%d", time.gmtime(self._clock()))
        self._sums.setdefault((day, family_of(agent), model, purpose), Usage()).include(usage)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = EVERY) -> None:
        """Write what has come, every `interval` seconds, until `is_stopping()`."""

        async def keep() -> None:
            if sums := self._taken():
                await asyncio.to_thread(self._write, sums)

        def due() -> float:
            return 0.0 if self._sums else math.inf

        await repeat(keep, is_stopping, interval, changes=self._journal.changes, due=due)

    def keep(self) -> None:
        """Write what has come."""
        if sums := self._taken():
            self._write(sums)

    def _taken(self) -> dict[Account, Usage]:
        """The sums so far. Called where they are added to, so that none is lost between."""
        sums, self._sums = self._sums, {}
        return sums

    def _write(self, sums: dict[Account, Usage]) -> None:
        """Add `sums` to the journal. They come back if it does not answer."""
        try:
            with self._journal.write() as session:
                for account, usage in sums.items():
                    _increase(session, account, usage)
        except BaseException:
            for account, usage in sums.items():
                self._sums.setdefault(account, Usage()).include(usage)
            raise


def _increase(session: Session, account: Account, usage: Usage) -> None:
    """Add to a row, which is made if it is missing. Safe among concurrent writers."""
    connection = session.connection()
    day, agent, model, purpose = account
    counts = {name: getattr(usage, name) for name in _COUNTS}
    insert: postgresql.Insert | sqlite.Insert
    is_postgresql = connection.dialect.name == "postgresql"
    insert = postgresql.insert(JudgeCostRow) if is_postgresql else sqlite.insert(JudgeCostRow)
    row = insert.values(day=day, agent=agent, model=model, purpose=purpose, **counts)
    more = {name: getattr(JudgeCostRow, name) + row.excluded[name] for name in _COUNTS}
    connection.execute(row.on_conflict_do_update(index_elements=["day", "agent", "model", "purpose"], set_=more))
