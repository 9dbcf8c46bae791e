"""Work queues: each job once, by one worker. A dead worker's jobs come back by themselves."""

import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from burnish.journal import Journal, jobs
from burnish.journal.tables import JudgeJob, LoadJob


def fill(journal: Journal, n: int) -> None:
    with journal.write() as session:
        for i in range(n):
            jobs.enqueue(session, JudgeJob, f"turn-{i}", {"i": i}, now=1000.0 + i)


def lease(journal: Journal, worker: str = "w", limit: int = 1, seconds: float = 60.0) -> list[jobs.Leased]:
    with journal.write() as session:
        return list(jobs.lease(session, JudgeJob, worker, limit=limit, seconds=seconds))


def states(journal: Journal) -> dict[str, int]:
    with journal.read() as session:
        return jobs.counts(session, JudgeJob)


def test_jobs_come_oldest_first_with_their_payload(any_journal: Journal) -> None:
    fill(any_journal, 3)
    first, second = lease(any_journal, limit=2)
    assert (first.subject, first.payload, first.attempt) == ("turn-0", {"i": 0}, 1)
    assert second.subject == "turn-1"
    assert [job.subject for job in lease(any_journal, limit=5)] == ["turn-2"]
    assert lease(any_journal) == []


def test_a_held_job_waits_without_a_try_until_it_is_released(any_journal: Journal) -> None:
    fill(any_journal, 1)
    (job,) = lease(any_journal)
    with any_journal.write() as session:
        assert jobs.hold(session, JudgeJob, job, "nobody is fit")
        assert not jobs.hold(session, JudgeJob, job, "twice")
    assert lease(any_journal) == [] and states(any_journal) == {"held": 1}
    with any_journal.write() as session:
        jobs.explain_held(session, JudgeJob, "still nobody")
        jobs.enqueue_again(session, JudgeJob, job.subject, {})
        row = session.get_one(JudgeJob, job.subject)
        assert (row.state, row.error, row.attempts) == ("held", "still nobody", 0)
    with any_journal.write() as session:
        assert jobs.release(session, JudgeJob) == 1
    (again,) = lease(any_journal)
    assert again.attempt == 1


def test_one_process_at_a_time_has_a_lease(any_journal: Journal) -> None:
    with any_journal.write() as session:
        assert jobs.take_lease(session, "check", "a", 60.0)
        assert jobs.take_lease(session, "check", "a", 60.0)
        assert not jobs.take_lease(session, "check", "b", 60.0)
        assert jobs.take_lease(session, "other", "b", -1.0)
        assert jobs.take_lease(session, "other", "a", 60.0)


def test_a_subject_is_queued_once(any_journal: Journal) -> None:
    fill(any_journal, 1)
    (job,) = lease(any_journal)
    with any_journal.write() as session:
        assert jobs.finish(session, JudgeJob, job)
        jobs.enqueue(session, JudgeJob, "turn-0", {"i": 99})
    assert states(any_journal) == {"done": 1}
    assert lease(any_journal) == []


def test_queues_are_separate(any_journal: Journal) -> None:
    fill(any_journal, 1)
    with any_journal.write() as session:
        assert jobs.lease(session, LoadJob, "w") == []


def test_a_failure_waits_longer_each_time_and_ends_dead(any_journal: Journal) -> None:
    fill(any_journal, 1)
    waits = []
    for attempt in (1, 2, 3):
        (job,) = lease(any_journal)
        assert job.attempt == attempt
        before = time.time()
        with any_journal.write() as session:
            is_dead = jobs.fail(session, JudgeJob, job, f"no {attempt}", max_attempts=3, delay=5.0)
            row = session.get_one(JudgeJob, "turn-0")
            waits.append(round(row.run_after - before, 1))
            assert (is_dead, row.state) == ((True, "dead") if attempt == 3 else (False, "queued"))
            assert row.error == f"no {attempt}"
        assert lease(any_journal) == []  # it is not due yet
        with any_journal.write() as session:
            row = session.get_one(JudgeJob, "turn-0")
            row.run_after = 0.0
    assert waits[:2] == [5.0, 10.0]
    assert lease(any_journal) == []
    assert states(any_journal) == {"dead": 1}


def test_the_pause_after_a_failure_has_a_ceiling(journal: Journal) -> None:
    fill(journal, 1)
    (job,) = lease(journal)
    many = jobs.Leased(job.subject, job.payload, 40, job.worker)
    with journal.write() as session:
        session.get_one(JudgeJob, "turn-0").attempts = 40
        session.flush()
        jobs.fail(session, JudgeJob, many, "no", max_attempts=1000)
        session.expire_all()
        assert session.get_one(JudgeJob, "turn-0").run_after - time.time() == pytest.approx(60.0, abs=5.0)


def test_a_lost_lease_can_neither_finish_nor_fail(any_journal: Journal) -> None:
    fill(any_journal, 1)
    (lost,) = lease(any_journal, "slow", seconds=-1.0)
    (held,) = lease(any_journal, "quick")
    with any_journal.write() as session:
        assert not jobs.finish(session, JudgeJob, lost)
        jobs.fail(session, JudgeJob, lost, "late", max_attempts=1)
    with any_journal.read() as session:
        row = session.get_one(JudgeJob, "turn-0")
        assert (row.state, row.worker, row.error) == ("leased", "quick", None)
        assert row.lease_until is not None and row.lease_until < time.time() + 500
    with any_journal.write() as session:
        assert jobs.finish(session, JudgeJob, held)


def test_a_worker_that_came_back_under_its_old_name_does_not_hold_its_old_lease(any_journal: Journal) -> None:
    fill(any_journal, 1)
    (before,) = lease(any_journal, "judge-1", seconds=-1.0)
    (after,) = lease(any_journal, "judge-1")
    with any_journal.write() as session:
        assert not jobs.finish(session, JudgeJob, before)
        assert jobs.finish(session, JudgeJob, after)


def test_no_job_goes_to_two_workers(any_journal: Journal) -> None:
    fill(any_journal, 60)

    def work(name: int) -> list[str]:
        taken: list[str] = []
        while batch := lease(any_journal, f"w{name}", limit=3):
            taken += [job.subject for job in batch]
            with any_journal.write() as session:
                assert all(jobs.finish(session, JudgeJob, job) for job in batch)
        return taken

    with ThreadPoolExecutor(6) as pool:
        taken = [subject for part in pool.map(work, range(6)) for subject in part]
    # On PostgreSQL a worker may find all due rows locked and stop early. The rest belongs to nobody.
    taken += work(9)
    assert Counter(taken) == Counter({f"turn-{i}": 1 for i in range(60)})
    assert states(any_journal) == {"done": 60}


KILLED = """
import os, signal, sys
from burnish.journal import Journal, jobs
from burnish.journal.tables import JudgeJob
journal = Journal.open(sys.argv[1])
with journal.write() as session:
    (job,) = jobs.lease(session, JudgeJob, "doomed", seconds=float(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_held_comes_back_after_its_lease(any_journal: Journal, journal_url: str) -> None:
    fill(any_journal, 1)
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, journal_url, "1000"], cwd=root, check=False)
    assert done.returncode == -9
    assert lease(any_journal) == []  # its lease still runs
    with any_journal.write() as session:
        session.get_one(JudgeJob, "turn-0").lease_until = time.time() - 1
    (job,) = lease(any_journal, "heir")
    assert job.attempt == 2
    with any_journal.write() as session:
        assert jobs.finish(session, JudgeJob, job)


def test_a_worker_killed_inside_its_transaction_took_nothing(any_journal: Journal, journal_url: str) -> None:
    fill(any_journal, 1)
    root = Path(__file__).parents[2]
    inside = KILLED.replace("\nos.kill", "\n    os.kill")
    done = subprocess.run([sys.executable, "-c", inside, journal_url, "1000"], cwd=root, check=False)
    assert done.returncode == -9
    (job,) = lease(any_journal)
    assert job.attempt == 1
