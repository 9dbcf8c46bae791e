"""A judging process is killed (-9) at random moments and started again: every turn must be judged exactly once."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.judging.turns import journal_with, ordinary
from burnish import config
from burnish.journal import Journal, jobs
from burnish.journal.tables import JudgeJob, JudgementRow
from burnish.judges.judge import Usage
from burnish.judges.models.panel import Panel
from burnish.judges.worker import Worker

LEASE_SECONDS = 0.5
PATIENCE = 120.0


class Slow:
    """A judge that takes some time, different for every turn."""

    model = "slow"

    def __init__(self) -> None:
        self.usage = Usage()

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        await asyncio.sleep(random.uniform(0.0, 0.2))
        return ["VERDICT: +1\nHINT: none"] * n

    async def close(self) -> None: ...


def measure(folder: Path, n_turns: int, n_kills: int, tell: Callable[[str], None], seed: int = 0) -> dict[str, int]:
    """`judged_twice`, `judged_never`: turns, of `n_turns`, after `n_kills`.

    `kills` counts those that met a living process with work left.
    """
    journal = journal_with(folder, ordinary(n_turns))
    rng = random.Random(seed)
    n_hit = 0
    for number in range(n_kills):
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.judging.kills", str(journal.engine.url)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()  # it has begun
        time.sleep(rng.uniform(0.0, 0.35))
        is_alive = child.poll() is None
        child.kill()
        child.wait()
        child.stdout.close()
        n_done = _n_done(journal)
        n_hit += is_alive and n_done < n_turns
        tell(f"kill {number + 1} of {n_kills}: {n_done} of {n_turns} turns judged")
    deadline = time.monotonic() + PATIENCE
    asyncio.run(_worker(journal, 64).run_forever(lambda: _n_done(journal) == n_turns or time.monotonic() > deadline))
    columns = JudgementRow.__table__.c  # type: ignore[attr-defined]
    with journal.read() as session:
        per_turn: dict[str, int] = dict(
            session.connection().execute(select(columns.interaction_id, func.count()).group_by("interaction_id")).all()
        )
    journal.close()
    n_twice = sum(count > 1 for count in per_turn.values())
    return {"judged_twice": n_twice, "judged_never": n_turns - len(per_turn), "kills": n_hit}


def _worker(journal: Journal, concurrency: int) -> Worker:
    return Worker(journal, Panel([Slow()], 60.0), config.Judge(concurrency=concurrency), lease_seconds=LEASE_SECONDS)


def _n_done(journal: Journal) -> int:
    with journal.read() as session:
        return jobs.counts(session, JudgeJob).get("done", 0)


def main() -> None:
    """The process that is killed."""
    journal = Journal.open(sys.argv[1], migrate=False)
    worker = _worker(journal, 4)
    print("begun", flush=True)
    asyncio.run(worker.run_forever(lambda: False, interval=0.01))


if __name__ == "__main__":
    main()
