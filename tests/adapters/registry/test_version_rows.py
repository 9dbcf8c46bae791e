"""Versions in the registry: unique numbers, pins, and versions that can never be served again."""

import time

import pytest

from burnish.adapters.registry import lifecycle, versions
from burnish.errors import Conflict, NotFound
from burnish.journal import Journal, jobs
from burnish.journal.tables import LoadJob, StepRow
from burnish.records import VersionState


@pytest.fixture
def agent(any_journal: Journal) -> str:
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    return "agent"


def reserve(journal: Journal) -> int:
    with journal.write() as session:
        return versions.reserve(session, "agent", parent=0, actor="ana")


def test_an_import_takes_a_number_and_becomes_a_candidate_when_its_files_are_there(
    any_journal: Journal, agent: str
) -> None:
    with any_journal.write() as session:
        session.add(StepRow(agent=agent, version=4, parent=0, outcome="failed", metrics={}, started_at=1.0))
    assert reserve(any_journal) == 5
    with any_journal.read() as session:
        row = lifecycle.version(session, agent, 5)
        assert (row.state, row.origin, row.reason) == (VersionState.REFUSED, "import", versions.UNFINISHED)
    with any_journal.write() as session:
        versions.admit(session, agent, 5, "d" * 64)
    with any_journal.write() as session:
        assert lifecycle.version(session, agent, 5).state == VersionState.CANDIDATE
        assert [job.subject for job in jobs.lease(session, LoadJob, "swapper")] == ["agent@v5"]
    with pytest.raises(Conflict, match="agent@v5 is still on trial"):
        reserve(any_journal)
    with pytest.raises(Conflict, match="no import that waits"), any_journal.write() as session:
        versions.admit(session, agent, 5, "d" * 64)


def test_an_import_that_failed_keeps_its_number_and_says_why(any_journal: Journal, agent: str) -> None:
    assert reserve(any_journal) == 1
    with any_journal.write() as session:
        versions.give_up(session, agent, 1, "the disk is full")
    assert reserve(any_journal) == 2
    with any_journal.read() as session:
        assert lifecycle.version(session, agent, 1).reason == "the disk is full"
        with pytest.raises(NotFound, match=r"agent@v9; `burnish versions list`"):
            lifecycle.version(session, agent, 9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": VersionState.REFUSED, "reason": "unlearned 9 of 64"}, "was refused: unlearned 9 of 64"),
        ({"removed_at": time.time(), "state": VersionState.RETIRED}, "only its record is left"),
    ],
)
def test_what_was_refused_or_removed_never_goes_live(
    any_journal: Journal, agent: str, change: dict[str, object], said: str
) -> None:
    with any_journal.write() as session:
        lifecycle.announce(session, agent, 1, parent=0, step_id=None, digest="d")
        for name, value in change.items():
            setattr(lifecycle.version(session, agent, 1), name, value)
    with pytest.raises(Conflict, match=said), any_journal.write() as session:
        lifecycle.promote(session, agent, 1, expected=0, actor="gate")
    with pytest.raises(Conflict, match=said), any_journal.write() as session:
        lifecycle.rollback(session, agent, to=1, actor="ana")
    with any_journal.read() as session:
        assert lifecycle.alias(session, agent) == 0


def test_a_pin_is_set_once_and_audited(any_journal: Journal, agent: str) -> None:
    with any_journal.write() as session:
        lifecycle.announce(session, agent, 1, parent=0, step_id=None, digest="d")
    said = []
    for is_pinned in (True, True, False):
        with any_journal.write() as session:
            said.append(versions.set_pinned(session, agent, 1, is_pinned, actor="ana"))
    assert said == [True, False, True]
    with any_journal.write() as session:
        lifecycle.version(session, agent, 1).removed_at = 5.0
        with pytest.raises(Conflict, match="removed on 1970-01-01"):
            versions.set_pinned(session, agent, 1, True, actor="ana")
