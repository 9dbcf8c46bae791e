"""The gateway starts while the database is down, from the last serving table. Engine and remote process need none."""

import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from burnish import serving_table
from burnish.config import Settings
from burnish.serving_table import Routes
from tests.cli.conftest import Run

DEAD = "journal.url=postgresql+psycopg://nobody@127.0.0.1:1/none"


def table(folder: Path) -> Routes:
    return serving_table.watch(folder / ".burnish" / "run" / "routes.json").current()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would run: the gateway's admin application, or the settings of another part."""
    found: list[Any] = []

    async def supervise(settings: Settings) -> None:
        found.append(settings)

    monkeypatch.setattr("burnish.processes.vllm_server.execute", found.append)
    monkeypatch.setattr("burnish.server.gateway.remote_process.run", found.append)
    monkeypatch.setattr("burnish.server.gateway.process.run", lambda _, fallback: found.append(fallback))
    monkeypatch.setattr(sys.modules["burnish.cli.up"], "_up", supervise)
    return found


@pytest.mark.parametrize("part", ["engine", "remote"])
def test_a_part_without_a_journal_starts_without_one(run: Run, started: list[Any], tmp_path: Path, part: str) -> None:
    done = run("run", part, "--set", DEAD)
    assert (done.status, len(started)) == (0, 1), done.error
    assert not list((tmp_path / ".burnish").glob("journal.db*"))


@pytest.mark.parametrize("part", [("run", "gateway"), ("up",)])
def test_a_part_that_serves_starts_from_the_last_table(
    run: Run, started: list[Any], tmp_path: Path, part: tuple[str, ...]
) -> None:
    assert run("keys", "create", "--scope", "inference", "--name", "ana").status == 0
    before = table(tmp_path)
    assert {key.name for key in before.keys.values()} == {"ana", "admin.key", "ui.key"}
    done = run(*part, "--set", DEAD, "--set", "gateway.port=0", "--set", 'engine.urls=["http://10.0.0.7:1"]')
    assert (done.status, len(started)) == (0, 1), done.error
    after = table(tmp_path)
    assert (after.keys, after.agents, after.engines) == (before.keys, before.agents, ("http://10.0.0.7:1",))


def test_admin_says_that_the_journal_does_not_answer(run: Run, started: list[Any], state: Path, tmp_path: Path) -> None:
    run("run", "gateway", "--set", DEAD)
    key = (tmp_path / ".burnish" / "admin.key").read_text().strip()
    answer = TestClient(started[0]).get("/admin/agents", headers={"authorization": f"Bearer {key}"})
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert "the journal does not answer" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", [None, '{"generation": 4, "agen'])
def test_without_a_table_nothing_starts_and_nothing_is_written(
    run: Run, started: list[Any], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / ".burnish" / "run" / "routes.json"
    if text is not None:
        file.parent.mkdir(parents=True)
        file.write_text(text)
    done = run("run", "gateway", "--set", DEAD)
    assert (done.status, started) == (1, [])
    assert ("cannot open the journal" if text is None else "expected a serving table") in done.error
    assert (file.read_text() if file.exists() else None) == text
