"""The journal's figures on both databases: every query runs, and a slow one ends."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from burnish.adapters.registry import agents
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.jobs import enqueue
from burnish.journal.tables import JudgeJob, StepRow
from burnish.server.gateway.metrics import from_journal
from burnish.server.gateway.metrics.scrape import Scraper
from tests.journals import any_journal, journal_url, migrated_file, sqlite_url
from tests.postgres import postgres

__all__ = ["any_journal", "journal_url", "migrated_file", "postgres", "sqlite_url"]
SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgresql": "SELECT pg_sleep(30)",
}


def figures(journal: Journal, folder: Path) -> dict[tuple[str, ...], float]:
    text = Scraper(Settings(state_dir=folder), journal).text().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_query_runs(any_journal: Journal, tmp_path: Path) -> None:
    with any_journal.write() as session:
        agents.ensure_agent(session, "agent")
        agents.ensure_agent(session, "agent.u-0123456789ab")
        session.flush()
        agents.find(session, "agent.u-0123456789ab").parent = "agent"
        for name in ("agent", "agent.u-0123456789ab", "gone"):
            steps = {"version": 1, "parent": 0, "outcome": "refused", "metrics": {"loss": 0.5}}
            session.add(StepRow(agent=name, started_at=1.0, ended_at=2.0, **steps))
        enqueue(session, JudgeJob, "one", {}, now=5.0)
    found = figures(any_journal, tmp_path)
    assert {key[1]: value for key, value in found.items() if key[0] == "burnish_scrape_ok"} == dict.fromkeys(
        ("gateways", "disk", "segments", "journal", "learning", "engines"), 1.0
    )
    assert found["burnish_steps_total", "agent", "refused"] == 2  # a personal agent's counts as its parent's
    assert found["burnish_steps_total", "other", "refused"] == 1
    assert found["burnish_jobs", "judge", "queued"] == 1
    assert found["burnish_oldest_job_seconds", "judge"] > 1e6


def test_a_slow_query_ends(any_journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.server.gateway.metrics.scrape.PATIENCE", 0.2)

    def families(session):  # type: ignore[no-untyped-def]
        session.connection().exec_driver_sql(SLOW[any_journal.engine.dialect.name]).all()
        yield from ()

    monkeypatch.setattr(from_journal, "families", families)
    found = figures(any_journal, tmp_path)
    assert found["burnish_scrape_ok", "journal"] == 0
    assert found["burnish_scrape_ok", "learning"] == 1
