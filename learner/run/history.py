"""An agent's past versions, and what they mean for its next step."""

from collections.abc import Callable

from sqlalchemy import select
from sqlmodel import col

from burnish.journal import Journal
from burnish.journal.tables import StepRow, VersionRow
from burnish.learner.safety import backoff
from burnish.learner.safety.forgetting import Forgetting, forgetting
from burnish.learner.safety.hint_validation import LikedReply, earlier
from burnish.records import StepOutcome


class History:
    """One agent's."""

    def __init__(self, journal: Journal, agent: str) -> None:
        self._journal = journal
        self._agent = agent

    def unfinished(self) -> set[int]:
        """Numbers of steps that ended without a version: whatever has such a number on the disk is what they left
        there."""
        announced = select(col(VersionRow.version)).where(col(VersionRow.agent) == self._agent)
        query = select(col(StepRow.version)).where(
            col(StepRow.agent) == self._agent,
            col(StepRow.outcome) != StepOutcome.OPEN,
            col(StepRow.version).not_in(announced),
        )
        with self._journal.read() as session:
            return set(session.scalars(query))

    def lags(self, live: int) -> Callable[[int], int]:
        """A function from a version to how many published versions `live` is ahead of it."""
        query = select(col(StepRow.version)).where(
            col(StepRow.agent) == self._agent, col(StepRow.outcome) == StepOutcome.PUBLISHED
        )
        with self._journal.read() as session:
            published = sorted(session.scalars(query))
        return lambda version: sum(version < number <= live for number in published)

    def forgetting(self, live: int) -> Forgetting:
        """How near `live` is to what the gate tolerates."""
        with self._journal.read() as session:
            return forgetting(session, self._agent, live)

    def rate(self, factor: float) -> float:
        """What the next step's learning rate is multiplied by: `factor` for each refusal that is not yet made good."""
        with self._journal.read() as session:
            return backoff.rate(session, self._agent, factor)

    def liked_replies(self, n: int) -> list[LikedReply]:
        """Users whom the agent's last steps' turns pleased, for the jury of the next: at most `n`."""
        with self._journal.read() as session:
            return earlier(session, self._agent, n) if n else []
