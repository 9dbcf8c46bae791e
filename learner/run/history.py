"""An agent's past versions, and what follows from them for its next step."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from burnish.adapters.registry import backoff
from burnish.journal import Journal
from burnish.journal.tables import StepRow, VersionRow
from burnish.learner.data import good_replies
from burnish.learner.data.good_replies import GoodReply
from burnish.learner.safety.forgetting import Forgetting, forgetting
from burnish.learner.safety.hint_validation import LikedReply, earlier
from burnish.records import StepOutcome


class History:
    """The history of one agent."""

    def __init__(self, journal: Journal, agent: str) -> None:
        self._journal = journal
        self._agent = agent

    def unfinished(self) -> set[int]:
        """Numbers of steps that ended without a version. Directories on disk with these numbers are leftovers."""
        announced = select(col(VersionRow.version)).where(col(VersionRow.agent) == self._agent)
        query = select(col(StepRow.version)).where(
            col(StepRow.agent) == self._agent,
            col(StepRow.outcome) != StepOutcome.OPEN,
            col(StepRow.version).not_in(announced),
        )
        with self._journal.read() as session:
            return set(session.scalars(query))

    def lags(self, live: int) -> Callable[[int], int]:
        """A function from a version to the number of published versions between it and `live`."""
        query = select(col(StepRow.version)).where(
            col(StepRow.agent) == self._agent, col(StepRow.outcome) == StepOutcome.PUBLISHED
        )
        with self._journal.read() as session:
            published = sorted(session.scalars(query))
        return lambda version: sum(version < number <= live for number in published)

    def forgetting(self, live: int) -> Forgetting:
        """How close `live` is to the gate's limit on forgetting."""
        with self._journal.read() as session:
            return forgetting(session, self._agent, live)

    def rate(self, factor: float) -> float:
        """The factor on the next step's learning rate: `factor` for each refusal that is not yet compensated."""
        with self._journal.read() as session:
            return backoff.rate(session, self._agent, factor)

    def liked_replies(self, n: int) -> list[LikedReply]:
        """At most `n` users who praised turns of the agent's last steps, for the hint validation of the next step."""
        with self._journal.read() as session:
            return earlier(session, self._agent, n) if n else []

    def good_replies(self, n: int, tokenizer: Any) -> list[GoodReply]:
        """At most `n` good replies of the agent's last steps."""
        with self._journal.read() as session:
            return good_replies.earlier(session, self._agent, n, tokenizer)
