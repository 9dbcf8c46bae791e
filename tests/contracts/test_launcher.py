"""Every launcher keeps a judging pool in the same way: n judges, each turn judged once, restarts, a clean stop.

The judges are real, on a real journal, and ask a real HTTP server. Ray is a real cluster on this machine.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlmodel import col

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import JudgeJob, JudgementRow
from burnish.journal.turns import ask_judge
from burnish.judges import permits
from burnish.processes import judge_pool
from burnish.processes.ray_actors import RayLauncher
from burnish.processes.supervisor import Launcher, LocalLauncher, Supervisor
from burnish.records import Fitness, NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.testing import StubEngine
from tests.factories import interaction, user
from tests.journals import journal, migrated_file, sqlite_url
from tests.turns import add_next_state, add_turn

__all__ = ["journal", "migrated_file", "sqlite_url"]
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]
N_JUDGES = 3


@pytest.fixture(scope="module", params=["processes", "ray"])
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    if request.param == "processes":
        yield LocalLauncher(lambda part, line: print(f"{part} | {line}"))
        return
    with RayLauncher("local", judge_pool.judge) as actors:
        yield actors


@pytest.fixture(scope="module")
def model() -> Iterator[StubEngine]:
    """A model that judges, a tenth of a second and more for each turn."""
    with StubEngine(["VERDICT: +1\nHINT: none"], base_name="j", token_delay=0.005) as engine:
        yield engine


@asynccontextmanager
async def running(launcher: Launcher, model: StubEngine, journal: Journal, folder: Path) -> AsyncIterator[Supervisor]:
    judge = {"model": "j", "url": model.url, "pool": N_JUDGES, "concurrency": 2}
    settings = Settings(state_dir=folder / "state", journal={"url": str(journal.engine.url)}, judge=judge)  # type: ignore[arg-type]
    with journal.write() as session:
        permits.file(session, settings, "j")
        permits.conclude(session, settings, "j", Fitness.FIT, "", {})
    environment = dict(os.environ)
    supervisor = Supervisor(judge_pool.parts(settings, environment), launcher)
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        supervisor.stop()
        await asyncio.wait_for(task, 60)


def add_turns(journal: Journal, names: list[str]) -> None:
    for name in names:
        add_turn(journal, interaction([user("copy 1")], "**1**", interaction_id=name))
        add_next_state(journal, name, NextStateKind.USER_REPLY, user("thanks"))
    with journal.write() as session:
        for name in names:
            ask_judge(session, name, NEXT_STATE)


def jobs(journal: Journal, state: str) -> list[JudgeJob]:
    with journal.read() as session:
        return list(session.query(JudgeJob).filter_by(state=state))


def pids(found: list[JudgeJob]) -> set[int]:
    """A worker's name has its process id in the middle."""
    return {int((job.worker or "").split("-")[1]) for job in found}


def verdicts(journal: Journal) -> Counter[str]:
    with journal.read() as session:
        return Counter(row.interaction_id for row in session.query(JudgementRow))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


async def test_a_pool_judges_every_turn_once_and_stops_cleanly(
    launcher: Launcher, model: StubEngine, journal: Journal, tmp_path: Path
) -> None:
    seen: set[int] = set()
    async with running(launcher, model, journal, tmp_path):
        n_turns = 0
        while len(seen) < N_JUDGES:  # until each of them has had its share
            names = [f"t{n_turns + n}" for n in range(30)]
            n_turns += len(names)
            add_turns(journal, names)
            await until(lambda: len(jobs(journal, "queued")) < 8, "the queue to shrink")
            seen |= pids(jobs(journal, "done") + jobs(journal, "leased"))
        # stopped in the middle of the work: running jobs end, waiting jobs keep waiting
    assert len(seen) == N_JUDGES
    assert not jobs(journal, "leased")
    assert len(jobs(journal, "done")) + len(jobs(journal, "queued")) == n_turns
    assert verdicts(journal) == {job.payload["interaction_id"]: 1 for job in jobs(journal, "done")}
    await until(lambda: not any(map(is_alive, seen)), "the judges' processes to end")


async def test_a_judge_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(
    launcher: Launcher, model: StubEngine, journal: Journal, tmp_path: Path
) -> None:
    add_turns(journal, [f"t{n}" for n in range(60)])
    async with running(launcher, model, journal, tmp_path) as supervisor:
        await until(lambda: jobs(journal, "leased"), "a judge to take a turn")
        victim = pids(jobs(journal, "leased")).pop()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: sum(supervisor.restarts.values()) == 1, "the dead judge to be started again")
        with journal.write() as session:  # a lease of over a minute expires now
            held = session.query(JudgeJob).filter_by(state="leased")
            held = held.filter(col(JudgeJob.worker).startswith(f"judge-{victim}-"))
            assert held.update({"lease_until": time.time() - 1.0})
        await until(lambda: len(jobs(journal, "done")) == 60, "all turns to be judged")
        add_turns(journal, [f"late{n}" for n in range(60)])
        await until(lambda: len(jobs(journal, "done")) == 120, "the late turns to be judged")
        assert victim not in pids(jobs(journal, "done")) or not is_alive(victim)
    assert sum(supervisor.restarts.values()) == 1
    assert verdicts(journal) == {job.payload["interaction_id"]: 1 for job in jobs(journal, "done")}
    assert len(verdicts(journal)) == 120
