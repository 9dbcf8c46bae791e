"""A journal on SQLite."""

from tests.journals import journal, migrated_file, sqlite_url

__all__ = ["journal", "migrated_file", "sqlite_url"]
