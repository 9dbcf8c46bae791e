"""An agent's past versions, and what they mean for its next step."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

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
        step: Any = StepRow
        version: Any = VersionRow
        announced = select(version.version).where(version.agent == self._agent)
        query = select(step.version).where(
            step.agent == self._agent, step.outcome != StepOutcome.OPEN, step.version.not_in(announced)
        )
        with self._journal.read() as session:
            return set(session.scalars(query))

    def lags(self, live: int) -> Callable[[int], int]:
        """A function from a version to how many published versions `live` is ahead of it."""
        step: Any = StepRow
        query = select(step.version).where(step.agent == self._agent, step.outcome == StepOutcome.PUBLISHED)
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
