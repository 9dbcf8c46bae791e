"""The grader: leases shadow groups that were drawn, has all members scored by one judge, blind and shuffled, and stores
the scores.

It works beside the worker and the comparer, in the same process. A failed request is tried again. A group is dropped
with the reason if the judge abstains, if a member contains prompt injection, or if all scores are equal. A score is
never invented.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog

from burnish import config
from burnish.errors import SAID
from burnish.files import instance
from burnish.journal import Journal, jobs, shadows
from burnish.journal.outage import repeat
from burnish.journal.tables import InteractionRow, RubricJob, ShadowGroupRow
from burnish.journal.turns import messages_of
from burnish.judges import prefilter
from burnish.judges.comparison import rubric
from burnish.judges.injection import scan
from burnish.judges.judge import JudgeUnavailable, identity
from burnish.judges.models.panel import Panel
from burnish.judges.verdicts.verdict import as_text, question
from burnish.logs import told
from burnish.records import GroupState

log = structlog.get_logger(__name__)
LEASE_MARGIN = 10.0
PAUSE = 5.0
MAX_ATTEMPTS = 3
"""Tries before a group is given up."""
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The subject of a scoring: the conversation, the hint, the members' replies, the live one first, and the agent
    that gave them.
    """

    conversation: Sequence[Mapping[str, Any]]
    wish: str
    replies: Sequence[Mapping[str, Any]]
    agent: str = ""

    @property
    def ruled_out(self) -> set[int]:
        """Members without content, by the same rules as for any reply. They get the lowest score, and the judge does
        not see them.
        """
        return {
            place for place, reply in enumerate(self.replies) if prefilter.reason(self.conversation, reply) is not None
        }

    def speaks_to_judge(self) -> bool:
        """True if a member looks like prompt injection. The group is then dropped without a closer look."""
        facts = [question((), as_text(reply), [], "assistant") for reply in self.replies]
        return any(scan.of_question(each).spans for each in facts)


class Grader:
    """Up to `judge.concurrency` groups side by side. `judge.votes` votes on each, every one in its own order. While
    `silence` says why no judge may be asked, groups wait.
    """

    def __init__(
        self,
        journal: Journal,
        panel: Panel,
        chosen: config.Judge,
        rng: Random | None = None,
        *,
        max_attempts: int = MAX_ATTEMPTS,
        silence: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._silence = silence
        self._panel = panel
        self._chosen = chosen
        self._max_attempts = max_attempts
        self._rng = rng or Random()
        self._name = f"grader-{instance()}"
        self._due_at = math.inf

    async def run_once(self) -> int:
        """Score the groups that are due. Returns how many were leased."""
        if self._silence() is not None:
            return 0
        seconds = self._panel.patience + LEASE_MARGIN
        leased = await asyncio.to_thread(self._lease, seconds)
        await asyncio.gather(*(self._grade(job) for job in leased))
        return len(leased)

    def _lease(self, seconds: float) -> Sequence[jobs.Leased]:
        with self._journal.write() as session:
            leased = jobs.lease(session, RubricJob, self._name, limit=self._chosen.concurrency, seconds=seconds)
            self._due_at = math.inf if leased else jobs.due_at(session, RubricJob)
        return leased

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.5) -> None:
        """Score groups as they arrive, until `is_stopping()`."""
        await repeat(self.run_once, is_stopping, interval, changes=self._journal.changes, due=lambda: self._due_at)

    async def _grade(self, job: jobs.Leased) -> None:
        name = str(job.payload["interaction_id"])
        try:
            drawn = self._read(name)
            if drawn is None:
                return self._end(job)
            if drawn.speaks_to_judge():
                return self._end(job, "speaks to the judge")
            ruled_out = drawn.ruled_out
            shown = [place for place in range(len(drawn.replies)) if place not in ruled_out]
            if not shown:
                return self._end(job, "no spread: no member says anything")
            model, grades = await self._ask(drawn, shown)
        except JudgeUnavailable as error:
            return self._give_back(job, str(error))
        except Exception as error:  # one malformed group must not stop the others
            log.exception("cannot score a shadow group", turn=name)
            return self._give_back(job, told(error))
        if grades.scores is None:
            facts = {"judge_id": identity(model, rubric.PROMPT), "votes": [None] * len(grades.votes)}
            return self._end(job, f"the judge abstained: {grades.reason}", **facts)
        n = len(drawn.replies)
        scores = _spread(shown, grades.scores, n)
        votes = [None if vote is None else [int(grade) for grade in _spread(shown, vote, n)] for vote in grades.votes]
        with self._journal.write() as session:
            if not jobs.finish(session, RubricJob, job):
                return
            if shadows.score(session, name, scores, identity(model, rubric.PROMPT), votes) and max(scores) == min(
                scores
            ):
                shadows.drop(session, name, f"no spread: all members are scored {scores[0]:g}")

    async def _ask(self, drawn: Drawn, shown: Sequence[int]) -> tuple[str, rubric.Grades]:
        """The model that answered and the grades of the members `shown`, in their order."""
        n = self._chosen.votes
        orders = [rubric.shuffled(len(shown), self._rng) for _ in range(n)]
        asked = [
            rubric.messages(drawn.conversation, drawn.wish, [drawn.replies[shown[place]] for place in order])
            for order in orders
        ]
        answers = await asyncio.gather(*(self._panel.ask(each, 1, drawn.agent) for each in asked))
        if len(models := {answer.model for answer in answers}) > 1:  # one reward function in a group
            raise JudgeUnavailable(f"expected one judge for a shadow group, got {', '.join(sorted(models))}")
        texts = [answer.texts[0] if answer.texts else "" for answer in answers]
        return answers[0].model, rubric.count(texts, orders, n)

    def _read(self, name: str) -> Drawn | None:
        """None if the turn is gone, or the group does not wait for a score."""
        with self._journal.read() as session:
            row, turn = session.get(ShadowGroupRow, name), session.get(InteractionRow, name)
            if row is None or turn is None or row.state != GroupState.DRAWN:
                return None
            digests = [turn.reply_digest, *(member.reply_digest for member in shadows.members_of(session, name))]
            said = messages_of(session, turn.message_digests)
            return Drawn(said, row.wish, messages_of(session, digests), turn.agent)

    def _end(self, job: jobs.Leased, reason: str | None = None, **facts: Any) -> None:
        """End the job. With a `reason` the group is dropped."""
        with self._journal.write() as session:
            if jobs.finish(session, RubricJob, job) and reason is not None:
                shadows.drop(session, str(job.payload["interaction_id"]), reason, **facts)

    def _give_back(self, job: jobs.Leased, error: str) -> None:
        name = str(job.payload["interaction_id"])
        with self._journal.write() as session:
            if jobs.fail(session, RubricJob, job, error, max_attempts=self._max_attempts, delay=PAUSE):
                shadows.drop(session, name, f"left unscored: {error}")
                log.warning("a shadow group stays unscored", turn=name, error=error.partition(SAID)[0])


def _spread(shown: Sequence[int], facts: Sequence[float], n: int) -> list[float]:
    """The grades of the members `shown`, extended to all `n`: those that the judge did not see get the lowest."""
    known = dict(zip(shown, facts, strict=True))
    return [known.get(place, float(rubric.WORST)) for place in range(n)]
