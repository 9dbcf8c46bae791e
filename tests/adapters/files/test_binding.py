"""A journal and an adapter store share an id. A foreign or older journal is refused, and nothing changes."""

import threading
from pathlib import Path

import pytest

from burnish.adapters.files.binding import bind
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.tables import StepRow
from tests.adapters.files.test_store import fill

FACTS = {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": 0}


def publish(store: AdapterStore, *versions: int, agent: str = "agent") -> None:
    for version in versions:
        with store.aside(agent, version) as directory:
            fill(directory)
            store.publish(agent, version, directory, FACTS)


def allocate(journal: Journal, *versions: int, agent: str = "agent") -> None:
    with journal.write() as session:
        lifecycle.ensure_agent(session, agent)
        for version in versions:
            if version % 2:
                lifecycle.announce(session, agent, version, parent=0, step_id=None, digest="d")
            else:
                session.add(
                    StepRow(agent=agent, version=version, parent=0, outcome="superseded", metrics={}, started_at=1.0)
                )


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def store(tmp_path: Path) -> AdapterStore:
    return AdapterStore(tmp_path / "adapters")


@pytest.fixture
def other_journal(tmp_path: Path) -> Journal:
    return Journal.open(f"sqlite:///{tmp_path / 'other.db'}")


def test_the_first_start_binds_both_and_later_ones_change_nothing(any_journal: Journal, store: AdapterStore) -> None:
    bind(any_journal, store)  # nothing was ever made
    given = store.journal_id()
    assert given is not None and len(given) == 32
    allocate(any_journal, 1, 2)
    publish(store, 1, 2)
    bind(any_journal, store)
    assert store.journal_id() == given


def test_a_store_from_before_there_were_ids_is_bound(any_journal: Journal, store: AdapterStore) -> None:
    allocate(any_journal, 1, 2, 3)
    publish(store, 1, 3)
    bind(any_journal, store)
    assert store.journal_id() is not None


def test_another_journal_is_refused_and_the_message_names_both_and_the_remedy(
    any_journal: Journal, other_journal: Journal, store: AdapterStore, tmp_path: Path
) -> None:
    bind(any_journal, store)
    allocate(any_journal, 1)
    publish(store, 1)
    given, before = store.journal_id(), listing(store.root)
    allocate(other_journal, 1, 2, 3)  # it knows the number, but does not belong to the store
    with pytest.raises(AdapterError) as caught:
        bind(other_journal, store)
    for said in (
        str(tmp_path / "other.db"),
        str(store.root),
        f"store {given}",
        "id (none)",
        "set journal.url",
        "Nothing was changed",
    ):
        assert said in str(caught.value)
    bind(other_journal, AdapterStore(tmp_path / "its own"))
    with pytest.raises(AdapterError, match="is not the one of the adapter store"):
        bind(other_journal, store)
    assert (listing(store.root), store.journal_id()) == (before, given)
    bind(any_journal, store)


def test_the_remedy_for_two_that_do_belong_together(
    other_journal: Journal, journal: Journal, store: AdapterStore
) -> None:
    bind(journal, store)
    allocate(other_journal, 1)
    publish(store, 1)
    with pytest.raises(AdapterError, match=r"remove .*journal-id"):
        bind(other_journal, store)
    store.binding.unlink()
    bind(other_journal, store)
    with pytest.raises(AdapterError, match="is not the one"):
        bind(journal, store)


def test_an_empty_journal_beside_a_full_store_is_refused(any_journal: Journal, store: AdapterStore) -> None:
    publish(store, 1, 2)
    publish(store, 1, agent="second")
    with pytest.raises(
        AdapterError, match=r"older than.*holds agent@v2, the journal gave no number to it \(1 more agents alike\)"
    ):
        bind(any_journal, store)
    assert store.journal_id() is None
    assert store.highest() == {"agent": 2, "second": 1}


def test_an_older_copy_of_the_journal_is_refused_until_the_later_versions_are_moved_out(
    any_journal: Journal, store: AdapterStore, tmp_path: Path
) -> None:
    bind(any_journal, store)
    allocate(any_journal, 1, 2)
    publish(store, 1, 2, 3)
    with pytest.raises(
        AdapterError, match="holds agent@v3, the journal gave no number above 2 to it; restore the latest journal"
    ):
        bind(any_journal, store)
    store.path("agent", 3).rename(tmp_path / "kept")
    bind(any_journal, store)


def test_an_empty_store_with_an_id_takes_a_new_journal(
    journal: Journal, other_journal: Journal, store: AdapterStore
) -> None:
    """A journal that was lost before anything was learned."""
    bind(journal, store)
    given = store.journal_id()
    bind(other_journal, store)
    assert store.journal_id() == given


def test_of_several_first_starts_one_decides(any_journal: Journal, store: AdapterStore) -> None:
    starts = [threading.Thread(target=bind, args=(any_journal, store)) for _ in range(6)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    bind(any_journal, store)  # raises if the two ids differ


def test_a_password_in_the_url_is_not_told(store: AdapterStore, any_journal: Journal) -> None:
    publish(store, 1)
    any_journal.engine.url = any_journal.engine.url.set(password="secret")
    with pytest.raises(AdapterError) as caught:
        bind(any_journal, store)
    assert "secret" not in str(caught.value)
