"""Empty journals for tests. A conftest imports what its folder needs. Each journal is a copy of a migrated one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.journal import Journal
from tests.postgres import running


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    Journal.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    shutil.copy(migrated_file, tmp_path / "journal.db")
    return f"sqlite:///{tmp_path / 'journal.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest) -> str:
    """The two databases for journals."""
    if request.param == "sqlite":
        url: str = request.getfixturevalue("sqlite_url")
        return url
    server = running(request.config)
    return server.url(server.emptied())


@pytest.fixture
def any_journal(journal_url: str) -> Iterator[Journal]:
    """A journal on each database in turn."""
    opened = Journal.open(journal_url)
    yield opened
    opened.close()


@pytest.fixture
def journal(sqlite_url: str) -> Iterator[Journal]:
    """A journal on SQLite."""
    opened = Journal.open(sqlite_url)
    yield opened
    opened.close()
