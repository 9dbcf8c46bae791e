"""Journals: on SQLite, and on each database in turn."""

from tests.journals import journal, journal_url, migrated_file, sqlite_url

__all__ = ["journal", "journal_url", "migrated_file", "sqlite_url"]
