"""SQLite's pages in memory."""

from pathlib import Path

from burnish.journal import CACHE_KIB, Journal


def test_only_a_process_that_asks_for_it_holds_many_pages(tmp_path: Path) -> None:
    journal = Journal.open(f"sqlite:///{tmp_path}/journal.db")
    for expected in (-2000, -CACHE_KIB):
        with journal.read() as session:
            assert session.connection().exec_driver_sql("PRAGMA cache_size").scalar_one() == expected
        journal.hold_pages()
