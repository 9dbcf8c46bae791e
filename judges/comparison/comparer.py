"""The comparer: leases pairs of replies from the journal, asks the judge which is better, and stores its answer.

It works beside the worker that judges turns, in the same process and with the same judges. A failed request is tried
again. After the last try the pair stays undecided, with the reason, and the gate counts it as undecided.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import Update, update
from sqlmodel import col

from burnish import config
from burnish.errors import SAID
from burnish.files import instance
from burnish.journal import Journal, jobs
from burnish.journal.outage import repeat
from burnish.journal.tables import CompareJob, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.judges.comparison import reply_pair
from burnish.judges.judge import JudgeUnavailable, identity
from burnish.judges.models.panel import Panel
from burnish.judges.verdicts.ballot import MIN_AGREEMENT
from burnish.logs import told

log = structlog.get_logger()
LEASE_MARGIN = 10.0
PAUSE = 5.0
MAX_ATTEMPTS = 3
"""Tries before a pair is given up."""
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The subject of a comparison: the conversation, the candidate's reply and the other one."""

    conversation: list[Mapping[str, Any]]
    candidate: Mapping[str, Any]
    baseline: Mapping[str, Any]


class Comparer:
    """Compares up to `judge.concurrency` pairs side by side."""

    def __init__(
        self, journal: Journal, panel: Panel, chosen: config.Judge, *, max_attempts: int = MAX_ATTEMPTS
    ) -> None:
        self._journal = journal
        self._panel = panel
        self._chosen = chosen
        self._max_attempts = max_attempts
        self._name = f"comparer-{instance()}"
        self._due_at = math.inf

    async def run_once(self) -> int:
        """Compare the pairs that are due. Returns how many were leased."""
        seconds = self._panel.patience + LEASE_MARGIN
        leased = await asyncio.to_thread(self._lease, seconds)
        await asyncio.gather(*(self._compare(job) for job in leased))
        return len(leased)

    def _lease(self, seconds: float) -> Sequence[jobs.Leased]:
        with self._journal.write() as session:
            leased = jobs.lease(session, CompareJob, self._name, limit=self._chosen.concurrency, seconds=seconds)
            self._due_at = math.inf if leased else jobs.due_at(session, CompareJob)
        return leased

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.5) -> None:
        """Compare pairs as they arrive, until `is_stopping()`."""
        await repeat(self.run_once, is_stopping, interval, changes=self._journal.changes, due=lambda: self._due_at)

    async def _compare(self, job: jobs.Leased) -> None:
        subject = {name: job.payload[name] for name in ("agent", "version", "interaction_id")}
        try:
            pair = self._read(subject)
            asked = [reply_pair.messages(pair.conversation, a, b) for a, b in _orders(pair)]
            n = max(1, -(-self._chosen.votes // 2))
            answers = await asyncio.gather(*(self._panel.ask(each, n, str(subject["agent"])) for each in asked))
            if len(models := {answer.model for answer in answers}) > 1:  # what one prefers first, another may not
                raise JudgeUnavailable(f"expected one judge for both orders of a pair, got {', '.join(sorted(models))}")
        except JudgeUnavailable as error:
            return self._give_back(job, subject, str(error))
        except Exception as error:  # one malformed pair must not stop the others
            log.exception("cannot compare a pair", **subject)
            return self._give_back(job, subject, told(error))
        outcome, votes, reason = reply_pair.outcome(answers[0].texts, answers[1].texts, MIN_AGREEMENT)
        facts = {
            "outcome": outcome,
            "votes": votes,
            "reason": reason,
            "judge_id": identity(answers[0].model, reply_pair.PROMPT),
        }
        with self._journal.write() as session:
            if jobs.finish(session, CompareJob, job):
                session.connection().execute(_of(subject).values(**facts))

    def _read(self, subject: Mapping[str, Any]) -> Pair:
        with self._journal.read() as session:
            row = session.get_one(ComparisonRow, (subject["agent"], subject["version"], subject["interaction_id"]))
            turn = session.get_one(InteractionRow, row.interaction_id)
            replies = messages_of(session, [row.candidate_digest, row.baseline_digest])
            return Pair(list(messages_of(session, turn.message_digests)), *replies)

    def _give_back(self, job: jobs.Leased, subject: Mapping[str, Any], error: str) -> None:
        with self._journal.write() as session:
            if jobs.fail(session, CompareJob, job, error, max_attempts=self._max_attempts, delay=PAUSE):
                session.connection().execute(_of(subject).values(reason=f"left undecided: {error[:500]}"))
                log.warning("a pair is left undecided", error=error.partition(SAID)[0], **subject)


def _orders(pair: Pair) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]:
    return (pair.candidate, pair.baseline), (pair.baseline, pair.candidate)


def _of(subject: Mapping[str, Any]) -> Update:
    return update(ComparisonRow).where(
        col(ComparisonRow.agent) == subject["agent"],
        col(ComparisonRow.version) == subject["version"],
        col(ComparisonRow.interaction_id) == subject["interaction_id"],
    )
