"""How many turns a judging process leases, judges and commits in a second if the model costs nothing."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.judging.turns import journal_with, ordinary
from burnish import config
from burnish.journal import Journal, jobs
from burnish.journal.tables import JudgeJob
from burnish.judges.judge import Usage
from burnish.judges.models.panel import Panel
from burnish.judges.worker import Worker

CONCURRENCY = 64


class Instant:
    """A judge that answers at once."""

    model = "instant"

    def __init__(self) -> None:
        self.usage = Usage()

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        await asyncio.sleep(0)
        return ["VERDICT: +1\nHINT: none"] * n

    async def close(self) -> None: ...


def worker_on(journal: Journal, judge: "Instant") -> Worker:
    return Worker(journal, Panel([judge], 60.0), config.Judge(concurrency=CONCURRENCY))


def turns_per_second(folder: Path, n_turns: int) -> float:
    """From lease to committed verdict, one process, SQLite."""
    journal = journal_with(folder, ordinary(n_turns))
    worker = worker_on(journal, Instant())

    def is_done() -> bool:
        with journal.read() as session:
            return jobs.counts(session, JudgeJob) == {"done": n_turns}

    started = time.perf_counter()
    asyncio.run(worker.run_forever(is_done, interval=0.01))
    seconds = time.perf_counter() - started
    journal.close()
    return n_turns / seconds
