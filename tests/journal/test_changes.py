"""Idle loops ask whether the journal has changed instead of asking their queries."""

import asyncio
import time

from sqlalchemy import text

from burnish.journal import Journal, jobs
from burnish.journal.changes import AGAIN, LONGEST_REST, Rest
from burnish.journal.outage import repeat
from burnish.journal.tables import JudgeJob, LeaseRow, LoadJob
from tests.postgres import Postgres


def commit(journal: Journal, name: str) -> None:
    with journal.write() as session:
        session.add(LeaseRow(name=name, holder="me", until=0.0))


def wait_for_change(journal: Journal, before: int) -> int:
    """PostgreSQL tells of a commit a moment later."""
    until = time.monotonic() + 10
    while (after := journal.changes.number()) == before and time.monotonic() < until:
        time.sleep(0.01)
    assert after != before
    return after


def test_every_commit_of_another_process_is_a_change_and_nothing_else_is(
    any_journal: Journal, journal_url: str
) -> None:
    other = Journal.open(journal_url)
    before = any_journal.changes.number()
    with other.read() as session:
        session.get(LeaseRow, "x")
    with other.write() as session:
        jobs.lease(session, JudgeJob, "nobody")  # a look at an empty queue
    assert any_journal.changes.number() == before
    for name in ("a", "b"):
        commit(other, name)
        after = wait_for_change(any_journal, before)
        assert any_journal.changes.number() == after
        before = after
    with other.engine.connect() as connection:  # rolled back
        connection.execute(text("DELETE FROM lease"))
    assert any_journal.changes.number() == before
    other.close()


def test_a_commit_of_ones_own_is_a_change_too(any_journal: Journal) -> None:
    before = any_journal.changes.number()
    commit(any_journal, "a")
    wait_for_change(any_journal, before)


def test_without_a_listener_everything_counts_as_changed(postgres: Postgres) -> None:
    name = postgres.fresh()
    journal = Journal.open(postgres.url(name))
    before = journal.changes.number()
    assert journal.changes.number() == before
    postgres.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'"
    )
    assert journal.changes.number() != wait_for_change(journal, before)
    journal.changes._tried_at = -1e9
    heard = journal.changes.number()
    assert journal.changes.number() == heard
    commit(journal, "a")
    wait_for_change(journal, heard)
    journal.close()


def test_a_journal_that_cannot_be_counted_counts_as_changed(tmp_path: object) -> None:
    journal = Journal.at(f"sqlite:///{tmp_path}/none.db")
    assert journal.changes.number() != journal.changes.number()


async def test_an_idle_loop_looks_again_when_something_is_committed_and_not_before(
    any_journal: Journal, journal_url: str
) -> None:
    other, looked, is_over = Journal.open(journal_url), asyncio.Queue[int](), False

    async def look() -> None:
        looked.put_nowait(1)

    loop = asyncio.create_task(repeat(look, lambda: is_over, 0.01, changes=any_journal.changes))
    await looked.get()
    await asyncio.sleep(0.3)
    assert looked.empty() and LONGEST_REST > 1.0
    commit(other, "a")
    await asyncio.wait_for(looked.get(), LONGEST_REST / 2)
    is_over = True
    await loop
    other.close()


async def test_work_that_becomes_due_by_the_clock_is_not_slept_through(any_journal: Journal) -> None:
    looked, is_over = asyncio.Queue[int](), False

    async def look() -> None:
        looked.put_nowait(1)

    due = time.time() + 0.2
    loop = asyncio.create_task(repeat(look, lambda: is_over, 0.01, changes=any_journal.changes, due=lambda: due))
    await looked.get()
    await asyncio.wait_for(looked.get(), LONGEST_REST / 2)
    assert time.time() >= due
    is_over = True
    await loop


def test_a_long_rest_ends_by_itself(journal: Journal) -> None:
    rest = Rest(journal.changes, longest=0.0)
    rest.begin()
    assert rest.is_over()


def test_a_queue_says_when_its_next_job_is_due(any_journal: Journal) -> None:
    with any_journal.write() as session:
        assert jobs.due_at(session, LoadJob) == float("inf")
        for name in ("a", "b"):
            jobs.enqueue(session, LoadJob, name, {})
        assert jobs.due_at(session, LoadJob) == 0.0
        first, second = jobs.lease(session, LoadJob, "me", limit=2, seconds=60.0)
        assert jobs.due_at(session, LoadJob) > time.time() + 30
        jobs.fail(session, LoadJob, first, "no", max_attempts=9, delay=5.0)
        assert time.time() + 1 < jobs.due_at(session, LoadJob) < time.time() + 30
        jobs.finish(session, LoadJob, second)


async def test_a_listener_that_loses_its_connection_wakes_everybody_and_ends_nobody(postgres: Postgres) -> None:
    name = postgres.fresh()
    journal = Journal.open(postgres.url(name))
    changes = journal.changes
    changes.number()
    resting = [asyncio.create_task(changes.told(30.0)) for _ in range(3)]
    await asyncio.sleep(0.1)
    await asyncio.to_thread(
        postgres.execute, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'", name
    )
    assert await asyncio.wait_for(asyncio.gather(*resting), 10) == [True] * 3
    changes.number()  # the end of the connection may come a moment after its last words
    await asyncio.sleep(0.1)
    changes.number()
    assert not changes.is_told
    await asyncio.sleep(AGAIN)
    before = changes.number()  # it listens again
    assert changes.is_told
    commit(journal, "a")
    wait_for_change(journal, before)
    journal.close()


async def test_a_listener_that_is_lost_between_two_looks_is_no_error(postgres: Postgres) -> None:
    journal = Journal.open(postgres.url(postgres.fresh()))
    changes = journal.changes
    changes.number()
    resting = asyncio.create_task(changes.told(0.5))
    await asyncio.sleep(0.1)
    changes._listener.close()  # as libpq does when a machine no longer answers
    assert await resting is False
    assert isinstance(changes.number(), int)
    journal.close()
