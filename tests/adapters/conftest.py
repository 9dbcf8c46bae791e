"""`any_journal` is on each database in turn, `journal` on SQLite."""

from tests.journals import any_journal, journal, journal_url, migrated_file, sqlite_url
from tests.postgres import postgres

__all__ = ["any_journal", "journal", "journal_url", "migrated_file", "postgres", "sqlite_url"]
