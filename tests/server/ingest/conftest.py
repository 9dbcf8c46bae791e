"""A journal on each database, and a pen that writes segments like a gateway."""

from pathlib import Path

import pytest

from tests.journals import any_journal, journal, journal_url, migrated_file, sqlite_url
from tests.postgres import postgres
from tests.server.ingest.pen import Pen

__all__ = ["any_journal", "journal", "journal_url", "migrated_file", "postgres", "sqlite_url"]


@pytest.fixture
def pen(tmp_path: Path) -> Pen:
    return Pen(tmp_path / "segments")
