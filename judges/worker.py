"""The judge's worker: leases turns, asks the judges, stores verdicts. It reads and writes the journal only. Serving
never waits for it. The journal is read and written in a thread: SQLite's writers wait for one another.

A verdict is stored once per turn, judge and origin. A failed request is tried again later. After the last try the turn
stays unjudged and is counted, and no verdict is invented. While no judge is fit, turns that need one are held, with the
reason; rules and users' own words need none.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from sqlmodel import Session

from burnish import config
from burnish.files import instance
from burnish.journal import Journal, jobs
from burnish.journal.evidence import settle
from burnish.journal.outage import repeat
from burnish.journal.tables import JudgeJob
from burnish.journal.turns import record_judgement, record_words
from burnish.judges import prefilter
from burnish.judges.injection.counterfactual import examine
from burnish.judges.judge import JudgeRefused, JudgeUnavailable, identity
from burnish.judges.models.budget import Budget
from burnish.judges.models.panel import Panel
from burnish.judges.verdicts import case
from burnish.judges.verdicts import judgement as entry
from burnish.judges.verdicts.ballot import MIN_AGREEMENT, Result, VoidBallot
from burnish.judges.verdicts.case import Case
from burnish.judges.verdicts.verdict import PROMPT
from burnish.logs import told
from burnish.records import Judgement
from burnish.rewards import WORDS

log = structlog.get_logger()
MAX_ATTEMPTS = 3
"""Tries before a turn is left unjudged."""
LONGEST_PAUSE = 15.0
LEASE_MARGIN = 10.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one job: a judgement, nothing (`is_needless`), the reason for which it is `held`, or the error for
    which it is given back, to be tried again after `delay` seconds.
    """

    job: jobs.Leased
    judgement: Judgement | None = None
    is_needless: bool = False
    held: str = ""
    error: str = ""
    delay: float = 1.0
    is_silent: bool = False

    @property
    def turn(self) -> str:
        return str(self.job.payload["interaction_id"])

    @property
    def origin(self) -> str:
        return str(self.job.payload["origin"])


class Worker:
    """One process's judging: up to `concurrency` turns side by side, and several outcomes in one transaction.

    A turn is leased for as long as the whole panel may take, with a margin. `lease_seconds` overrides that. `silence`
    says why no judge may be asked now, None if one may.
    """

    def __init__(
        self,
        journal: Journal,
        panel: Panel,
        chosen: config.Judge,
        *,
        lease_seconds: float | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        min_agreement: float = MIN_AGREEMENT,
        silence: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._panel = panel
        self._silence = silence
        self._budget = Budget(journal, chosen.max_votes_per_day)
        self._votes = chosen.votes
        self._concurrency = chosen.concurrency
        self._max_attempts = max_attempts
        self._lease_seconds = panel.patience + LEASE_MARGIN if lease_seconds is None else lease_seconds
        self._min_agreement = min_agreement
        self._rubrics = chosen.rubrics
        self._name = f"judge-{instance()}"
        self._n_silent = 0  # times in a row that no judge answered
        self._is_spent = False
        self._due_at = math.inf

    async def run_once(self) -> int:
        """Judge what is due, up to `concurrency` turns. Returns how many were leased."""
        taken = await asyncio.to_thread(self._take, self._concurrency, 0)
        outcomes = await asyncio.gather(*(self._ask(job, asked) for job, asked in taken))
        await asyncio.to_thread(self._store, outcomes)
        return len(taken)

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.1) -> None:
        """Keep `concurrency` judgements going until `is_stopping()`, then let running ones end.

        While the judge is unavailable the pauses grow: an engine that restarts for half a minute must not use up the
        tries of waiting turns.
        """
        running: set[asyncio.Task[Outcome]] = set()

        async def judge_some() -> bool:
            if self._n_silent and not running:
                await asyncio.sleep(min(LONGEST_PAUSE, interval * 2.0 ** min(self._n_silent, 20)))
            n_free = self._concurrency - len(running)
            if not (self._n_silent and running) and n_free:
                taken = await asyncio.to_thread(self._take, n_free, len(running))
                running.update(asyncio.create_task(self._ask(job, asked)) for job, asked in taken)
            if not running:
                return False
            await self._settle_some(running, interval)
            return True

        await repeat(judge_some, is_stopping, interval, changes=self._journal.changes, due=lambda: self._due_at)
        while running:
            await self._settle_some(running, interval)

    async def _settle_some(self, running: set[asyncio.Task[Outcome]], interval: float) -> None:
        """Wait a moment for judgements, and store the finished ones. Those that cannot be stored now stay `running`."""
        done, _ = await asyncio.wait(running, timeout=interval, return_when=asyncio.FIRST_COMPLETED)
        if done:
            await asyncio.to_thread(self._store, [task.result() for task in done])
        running -= done

    def _take(self, limit: int, n_running: int) -> list[tuple[jobs.Leased, Case | Exception]]:
        """Up to `limit` leased turns, and the case of each. None if the day's votes are spent."""
        limit = self._budget.turns_left(self._votes, n_running, limit)
        self._report_spent(is_spent=not limit and not n_running)
        if not limit:
            return []
        with self._journal.write() as session:
            leased = jobs.lease(session, JudgeJob, self._name, limit=limit, seconds=self._lease_seconds)
        with self._journal.read() as session:
            if not leased:
                self._due_at = jobs.due_at(session, JudgeJob)
                return []
            return list(zip(leased, case.read(session, leased, self._rubrics), strict=True))

    async def _ask(self, job: jobs.Leased, asked: Case | Exception) -> Outcome:
        """The outcome of one turn. A model is asked only if nothing else settles it, and if one is fit."""
        interaction_id, origin = str(job.payload["interaction_id"]), str(job.payload["origin"])
        judge_id = prefilter.identity()
        try:
            if isinstance(asked, Exception):
                raise asked
            if asked.is_needless:
                return Outcome(job, is_needless=True)
            if asked.words is not None:
                return Outcome(job, asked.words)
            if asked.rule is not None:
                result = Result(-1, 1.0, None, (), 0, reason=asked.rule)
            elif (silence := self._silence()) is not None:
                return Outcome(job, held=silence)
            else:
                model, result = await examine(self._panel, asked, self._votes, self._min_agreement)
                judge_id = identity(model, PROMPT, asked.rubric)
        except JudgeUnavailable as error:
            is_silent = not isinstance(error, JudgeRefused)  # one turn that is too long stops no other
            return Outcome(job, error=str(error), delay=LONGEST_PAUSE if is_silent else 1.0, is_silent=is_silent)
        except VoidBallot as error:
            return Outcome(job, error=str(error))
        except Exception as error:  # one malformed turn must not stop the judging of all others
            log.exception("cannot judge a turn", turn=interaction_id, origin=origin)
            return Outcome(job, error=told(error))
        return Outcome(job, entry.judgement(interaction_id, judge_id, result, asked))

    def _store(self, outcomes: Sequence[Outcome]) -> None:
        """All in one transaction. Each counts only while its lease is held."""
        if not outcomes:
            return
        self._budget.note()
        self._n_silent = self._n_silent + 1 if all(outcome.is_silent for outcome in outcomes) else 0
        with self._journal.write() as session:
            settle(session, *dict.fromkeys(outcome.turn for outcome in outcomes if self._is_over(session, outcome)))

    def _report_spent(self, *, is_spent: bool) -> None:
        if is_spent and not self._is_spent:
            hours = self._budget.seconds_to_tomorrow / 3600
            log.warning(
                "the day's votes are spent; turns wait (raise judge.max_votes_per_day to judge more)",
                hours_to_go=round(hours, 1),
            )
        self._is_spent = is_spent

    def _is_over(self, session: Session, outcome: Outcome) -> bool:
        """Store one outcome. False if the turn will be judged again, by us or by a new holder of its lease. A held turn
        may still be ready without its verdict.
        """
        if outcome.held:
            is_held = jobs.hold(session, JudgeJob, outcome.job, outcome.held)
            if self._silence() is None:  # a judge was found fit in the meantime
                jobs.release(session, JudgeJob)
            return is_held
        if outcome.judgement is None and not outcome.is_needless:
            return self._give_back(session, outcome)
        if not jobs.finish(session, JudgeJob, outcome.job):
            return False
        if outcome.judgement is not None:
            record = record_words if outcome.judgement.judge_id.startswith(WORDS) else record_judgement
            record(session, outcome.judgement, outcome.origin)
        return True

    def _give_back(self, session: Session, outcome: Outcome) -> bool:
        """True if that was its last try."""
        attempts, delay = self._max_attempts, outcome.delay
        is_dead = jobs.fail(session, JudgeJob, outcome.job, outcome.error, max_attempts=attempts, delay=delay)
        log.warning(
            "a turn is left unjudged" if is_dead else "a turn will be judged again",
            turn=outcome.turn,
            error=outcome.error.partition("; ")[0],  # behind it stands what the judge said, which may quote the turn
        )
        return is_dead
