"""The way back to an earlier Burnish, and the copies from before migrations."""

from array import array
from pathlib import Path

import pytest
from sqlalchemy import delete

from burnish.errors import JournalError
from burnish.journal import Journal
from burnish.journal.blobs import PART, prompt_of
from burnish.journal.tables import InteractionRow, PromptPartRow
from tests.factories import interaction, user
from tests.postgres import running
from tests.turns import add_turn


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """Databases with a schema that a test may change."""
    if request.param == "sqlite":
        return sqlite_url
    return running(request.config).url(running(request.config).fresh())


def test_a_journal_goes_back_to_an_earlier_schema_and_forward_again(url: str) -> None:
    journal = Journal.open(url)
    head = journal.revision()
    prompt = array("i", range(2 * PART + 3))
    add_turn(journal, interaction([user("x")], interaction_id="kept", prompt_ids=prompt))
    journal.downgrade("0009")
    assert journal.revision() == "0009"
    journal.close()
    journal = Journal.open(url)
    assert journal.revision() == head
    with journal.read() as session:
        assert prompt_of(session, session.get_one(InteractionRow, "kept")) == prompt
    journal.close()


def test_a_prompt_without_a_part_stops_the_way_back(url: str) -> None:
    journal = Journal.open(url)
    add_turn(journal, interaction([user("x")], interaction_id="damaged", prompt_ids=array("i", range(PART))))
    with journal.write() as session:
        session.execute(delete(PromptPartRow))
    with pytest.raises(JournalError, match=r"damaged: 1 parts .* restore a backup"):
        journal.downgrade("0019")
    assert journal.revision() not in (None, "0019")
    journal.close()


@pytest.mark.parametrize("revision", ["8765", "0013x", ""])
def test_an_unknown_schema_is_refused_with_those_that_are_known(sqlite_url: str, revision: str) -> None:
    journal = Journal.open(sqlite_url)
    with pytest.raises(JournalError, match=r"expected a schema before .*, got .*here: 0001, 0002"):
        journal.downgrade(revision)
    with pytest.raises(JournalError, match="expected a schema before"):
        journal.downgrade(str(journal.revision()))


def test_only_the_latest_copy_from_before_a_migration_is_kept(sqlite_url: str, tmp_path: Path) -> None:
    for earlier in ("0011", "0012"):
        journal = Journal.open(sqlite_url)
        journal.downgrade(earlier)
        journal.close()
        Journal.open(sqlite_url).close()
        copies = [path.name for path in tmp_path.glob("journal.db.before-*")]
        assert copies == [f"journal.db.before-{earlier}"]
