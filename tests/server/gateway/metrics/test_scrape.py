"""`GET /metrics` of a real gateway: every part's figures, and what is left of them if a part is away."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from registered import Registered, registered

from burnish.errors import Overloaded
from burnish.journal.tables import InteractionRow, JudgementRow, StepRow
from burnish.judges.verdicts import hint_rules
from burnish.server.gateway.metrics import from_journal
from burnish.server.gateway.metrics.scrape import Scraper
from tests.factories import interaction
from tests.turns import add_turn

Series = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    with registered(tmp_path_factory.mktemp("metrics")) as built:
        yield built


def parsed(text: str) -> Series:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(made: Registered) -> Series:
    with made.running.client("admin") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return parsed(answer.text)


def test_a_request_shows_within_seconds(made: Registered) -> None:
    made.running.chat()
    made.running.stream()
    made.running.chat(model="nobody")
    until = time.monotonic() + 20
    while (found := scraped(made)).get(("burnish_requests_total", "/v1/chat/completions", "404"), 0) < 1:
        assert time.monotonic() < until, found
        time.sleep(0.2)
    assert found["burnish_requests_total", "/v1/chat/completions", "200"] == 2
    assert found["burnish_replies_total", "agent", "stop"] == 2
    assert found["burnish_tokens_total", "agent", "output"] > 2
    assert found["burnish_tokens_total", "agent", "prompt"] > 2
    assert found["burnish_time_to_first_token_seconds_count", "agent"] == 1
    assert found["burnish_records_total", "written"] == 2
    assert {key for key, value in found.items() if key[0] == "burnish_scrape_ok" and not value} == set()


def test_the_learners_and_the_gates_figures_come_from_the_journal(made: Registered) -> None:
    with made.journal.write() as session:
        times = {"started_at": 100.0, "ended_at": 130.0}
        for version, outcome in ((21, "published"), (22, "refused"), (23, "refused")):
            row = StepRow(agent="agent", version=version, parent=2, outcome=outcome, metrics={"step_kl": 0.25}, **times)
            row.monitors = {"entropy": {"level": "yellow", "value": 1.0, "why": "it falls"}}
            session.add(row)
    name = add_turn(made.journal, interaction("i1", "hello"), is_ready=True)
    with made.journal.write() as session:
        assert session.get(InteractionRow, name) is not None
        common = {"interaction_id": name, "judge_id": "j", "confidence": 1.0, "votes": [], "n_failed": 0}
        now = time.time()
        for origin, score, status in (("a", 1, None), ("b", -1, "accepted"), ("c", None, hint_rules.LENGTH)):
            row = JudgementRow(
                judgement_id=origin, origin=origin, score=score, hint_status=status, **common, created_at=now
            )
            session.add(row)
    time.sleep(1.1)  # an answer stands for a second
    found = scraped(made)
    assert found["burnish_steps_total", "agent", "refused"] == 2
    assert found["burnish_step_kl", "agent"] == 0.25
    assert found["burnish_step_seconds", "agent"] == 30.0
    assert found["burnish_monitor_level", "agent", "entropy"] == 1
    assert found["burnish_gate_verdicts_total", "agent", "refused"] == 1
    assert found["burnish_gate_verdicts_total", "agent", "passed"] == 3
    assert found["burnish_swaps_total", "agent", "forward"] == 2
    assert found["burnish_live_version", "agent"] == 2
    assert [found["burnish_verdicts_recent", each] for each in ("good", "bad", "abstained")] == [1, 1, 1]
    assert [found["burnish_hints_recent", each] for each in ("accepted", "refused")] == [1, 1]
    assert found["burnish_ready_rows", "agent"] == 1
    assert found["burnish_jobs", "load", "queued"] == 0
    assert found["burnish_ingest_lag_seconds",] >= 0
    assert found["burnish_engine_up", "0"] == 1


@pytest.mark.parametrize("key", [None, "talker", "viewer", "operator", "unknown"])
def test_only_a_metrics_key_reads_the_figures(made: Registered, key: str | None) -> None:
    with made.running.client(key) as client:
        assert client.get("/metrics").status_code in (401, 403)


def test_every_code_for_a_refused_hint_is_counted() -> None:
    codes = {value for name, value in vars(hint_rules).items() if name.isupper() and isinstance(value, str)}

    assert codes - {hint_rules.ACCEPTED} == set(from_journal._REFUSED_HINTS)


def test_a_journal_that_is_away_costs_only_its_own_figures(made: Registered, tmp_path: Path) -> None:
    settings = made.settings.model_copy(update={"state_dir": tmp_path})
    shutil.copytree(made.settings.run_dir, settings.run_dir)
    journal = type(made.journal).at(f"sqlite:///{tmp_path / 'none' / 'journal.db'}")
    found = parsed(Scraper(settings, journal).text().decode())
    assert {key[1] for key, value in found.items() if key[0] == "burnish_scrape_ok" and not value} == {
        "journal",
        "learning",
        "segments",
    }
    assert ("burnish_disk_free_bytes",) in found
    journal.close()


def test_a_second_scrape_never_waits_for_the_first(made: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    scraper = Scraper(made.settings, made.journal)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Iterator[None]:
        begun.set()
        may_end.wait(20)
        yield from ()

    monkeypatch.setattr(scraper, "_disk", slow)
    first = threading.Thread(target=scraper.text)
    first.start()
    assert begun.wait(20)
    with pytest.raises(Overloaded):
        scraper.text()
    may_end.set()
    first.join(20)
    assert b"burnish_scrape_ok" in scraper.text()
