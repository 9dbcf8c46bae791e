"""The judge's worker: leases turns, asks, stores verdicts. It reads and writes the journal only; serving never waits for it.

A verdict is stored once per turn, judge and origin. A judge that fails is tried again later; after the last try the turn
stays unjudged and is counted, and nothing is invented in its place.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import select
from sqlmodel import Session

from burnish.journal import Journal, jobs
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, NextStateRow
from burnish.journal.turns import messages_of, record_judgement, settle
from burnish.records import FeedbackSource, Judgement, NextStateKind
from burnish.rewards import FEEDBACK
from judges.ballot import VoidBallot, count
from judges.judge import Judge, JudgeUnavailable, identity
from judges.verdict import PROMPT, as_text, verdict_messages

log = structlog.get_logger()
LONGEST_PAUSE = 15.0


class Worker:
    """One process's judging. `run_once` leases up to `concurrency` turns and judges them side by side."""

    def __init__(
        self, journal: Journal, judge: Judge, *, votes: int, concurrency: int, max_attempts: int, lease_seconds: float
    ) -> None:
        self._journal = journal
        self._judge = judge
        self._judge_id = identity(judge.model, PROMPT)
        self._votes = votes
        self._concurrency = concurrency
        self._max_attempts = max_attempts
        self._lease_seconds = lease_seconds
        self._name = f"judge-{os.getpid()}"
        self._n_silent = 0  # rounds in a row in which no judge answered

    async def run_once(self) -> int:
        """Judge what is due; returns how many turns were taken in hand."""
        with self._journal.write() as session:
            leased = jobs.lease(session, JudgeJob, self._name, limit=self._concurrency, seconds=self._lease_seconds)
        answered = await asyncio.gather(*map(self._judge_one, leased))
        if leased:
            self._n_silent = 0 if any(answered) else self._n_silent + 1
        return len(leased)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Keep `concurrency` judgements going until `is_stopping()`.

        While the judge is away the pauses grow: an engine that restarts for half a minute must not use up the tries of what waits.
        """
        while not is_stopping():
            if not await self.run_once() or self._n_silent:
                await asyncio.sleep(min(LONGEST_PAUSE, interval * 2.0 ** min(self._n_silent, 20)))

    async def _judge_one(self, job: jobs.Leased) -> bool:
        """Judge one turn, or give it back; False where the judge did not answer."""
        interaction_id, origin = str(job.payload["interaction_id"]), str(job.payload["origin"])
        try:
            with self._journal.read() as session:
                messages = _question(session, interaction_id, origin)
            result = count(await self._judge.answers(messages, self._votes), self._votes)
        except JudgeUnavailable as error:
            self._give_back(job, interaction_id, str(error), delay=LONGEST_PAUSE)
            return False
        except VoidBallot as error:
            self._give_back(job, interaction_id, str(error))
            return True
        except Exception as error:  # one turn of a shape that nobody thought of must not stop the judging of all others
            log.exception("cannot judge a turn", turn=interaction_id, origin=origin)
            self._give_back(job, interaction_id, repr(error))
            return True
        judgement = Judgement(
            interaction_id,
            self._judge_id,
            result.score,
            result.confidence,
            result.hint,
            result.votes,
            result.n_failed,
            time.time(),
        )
        with self._journal.write() as session:
            if jobs.finish(session, JudgeJob, job):
                record_judgement(session, judgement, origin)
                settle(session, interaction_id)
        log.debug("judged", turn=interaction_id, origin=origin, score=result.score, hint=result.hint)
        return True

    def _give_back(self, job: jobs.Leased, interaction_id: str, error: str, *, delay: float = 1.0) -> None:
        with self._journal.write() as session:
            is_dead = jobs.fail(session, JudgeJob, job, error, max_attempts=self._max_attempts, delay=delay)
            if is_dead:
                settle(session, interaction_id)
        log.warning("left unjudged" if is_dead else "will be judged again", turn=interaction_id, error=error)


def _question(session: Session, interaction_id: str, origin: str) -> list[dict[str, str]]:
    """The verdict prompt for one turn, from what the journal holds."""
    turn = session.get_one(InteractionRow, interaction_id)
    conversation = messages_of(session, turn.message_digests)
    reply = as_text(messages_of(session, [turn.reply_digest])[0])
    if origin == FEEDBACK:
        return verdict_messages(conversation, reply, _feedback_text(session, interaction_id), "feedback")
    next_state = session.get_one(NextStateRow, interaction_id)
    came_back = messages_of(session, next_state.message_digests)
    role = "user" if next_state.kind == NextStateKind.USER_REPLY else "tool"
    return verdict_messages(conversation, reply, "\n".join(map(as_text, came_back)), role)


def _feedback_text(session: Session, interaction_id: str) -> str:
    """The latest comment of a user, with the rating beside it: what the harness says never reaches the judge."""
    columns: Any = FeedbackRow
    words = (columns.interaction_id == interaction_id, columns.comment != "", columns.source == FeedbackSource.USER)
    latest = session.scalars(select(FeedbackRow).where(*words).order_by(columns.created_at.desc())).first()
    if latest is None:
        raise LookupError(f"no user has commented on {interaction_id}")
    lines = []
    if latest.rating is not None:
        lines.append(f"rating: {'good' if latest.rating > 0 else 'bad' if latest.rating < 0 else 'neutral'}")
    if latest.comment:
        lines.append(f"comment: {latest.comment}")
    return "\n".join(lines)
