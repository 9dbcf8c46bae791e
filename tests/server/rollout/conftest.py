"""Journals: on SQLite, and on each database in turn."""

from tests.journals import any_journal, journal, journal_url, migrated_file, sqlite_url

__all__ = ["any_journal", "journal", "journal_url", "migrated_file", "sqlite_url"]
