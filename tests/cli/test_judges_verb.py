"""`burnish judges`: calibrate, rejudge and list against a real HTTP server, and labelling by hand through a pipe."""

import io
import re
import time
from pathlib import Path
from typing import Any

import pytest

from burnish.cli.common import moment
from burnish.errors import ConfigError
from burnish.journal import Journal, judge_checks
from burnish.journal.tables import JudgeCostRow, JudgementRow
from burnish.journal.turns import record_judgement
from burnish.judges.calibration import golden
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.testing import StubEngine
from tests.cli.conftest import Run
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_next_state, add_turn


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Three judged turns in the working directory of `run`."""
    (tmp_path / ".burnish").mkdir()
    journal = Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db")
    for name, came_back, score in (("a", "thanks", 1), ("b", "no bold", 1), ("c", "so be it", None)):
        add_turn(journal, interaction([user("copy [1]")], "**1**", interaction_id=name))
        add_next_state(journal, name, NextStateKind.USER_REPLY, user(came_back))
        with journal.write() as session:
            record_judgement(session, judgement(name, score), NEXT_STATE)
    add_feedback(journal, "a", 1.0)
    return journal


@pytest.fixture
def flags() -> object:
    with StubEngine(["VERDICT: +1\nHINT: none"], base_name="j") as engine:
        yield ["--set", "judge.model=j", "--set", f"judge.url={engine.url}"]


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_judge_is_scored_and_its_figures_are_printed(run: Run, flags: list[str]) -> None:
    done = run("judges", "calibrate", *flags)
    assert done.status == 0
    n_votes = 3 * sum(golden.question(case).n_readings for case in golden.load(golden.SHIPPED))
    counted = f"{n_votes:,} / {n_votes:,}"
    for text in ("accuracy", "0.333", "false positives", "1.000", "golden.sandbox.jsonl (240 cases)", counted):
        assert text in done.out
    (told,) = run("judges", "calibrate", *flags, "--json").json
    assert (told["judge"], told["verdicts"], told["accuracy"], told["false_positive_rate"]) == ("j", 240, 1 / 3, 1.0)
    assert told["confusion"]["-1"]["1"] == 80 and len(told["wrong"]) == 160


def test_a_judge_that_is_away_takes_nothing_from_the_one_before(run: Run, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "few.jsonl").write_text("".join(golden.SHIPPED.read_text().splitlines(keepends=True)[:3]))
    more = ("--judge", "j", "--judge", "base", "--set", "engine.port=9")
    done = run("judges", "calibrate", *flags, "--golden", "few.jsonl", *more, "--json")
    # `base` is the engine's model, not the configured server's
    assert done.status == 1 and "check that it is running" in done.error
    assert [told["judge"] for told in done.json] == ["j"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--golden", "absent.jsonl"],
            "no golden set at absent.jsonl; `burnish judges label --output absent.jsonl` makes one",
        ),
        (["--golden", "bad.jsonl"], "bad.jsonl, line 1: the field 'reply' is missing"),
        (["--set", "engine.port=9"], "check that it is running"),
    ],
)
def test_what_cannot_be_scored_is_one_line(run: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"messages": ["a"]}\n')
    done = run("judges", "calibrate", *arguments)
    assert done.status == 1 and said in done.error and "Traceback" not in done.error


@pytest.mark.parametrize(
    ("flags_of", "name"), [([], "golden.sandbox.jsonl"), (["--set", "engine.model=elsewhere"], "golden.english.jsonl")]
)
def test_a_judge_that_praises_everything_may_not_speak(
    run: Run, tmp_path: Path, flags: list[str], flags_of: list[str], name: str
) -> None:
    done = run("judges", "check", *flags, *flags_of)
    assert done.status == 1
    for text in (f"j on {name} (24 of", "the judge is unfit: its κ is 0.00", "remedy: set judge.model to a stronger"):
        assert text in done.out
    told = run("judges", "check", *flags, *flags_of, "--json").json
    assert (told["judge"], told["state"], told["kappa"], told["n_cases"]) == ("j", "unfit", 0.0, 24)
    with Journal.open(f"sqlite:///{tmp_path}/.burnish/journal.db").read() as session:
        (row,) = judge_checks.filed(session).values()
    assert (row.model, row.state) == ("j", "unfit")


def test_a_judge_that_knows_may_speak(run: Run) -> None:
    with StubEngine(knowing, base_name="j") as engine:
        done = run("judges", "check", "--set", "judge.model=j", "--set", f"judge.url={engine.url}")
    assert done.status == 0 and "the judge is fit" in done.out and "remedy" not in done.out


def knowing(body: dict[str, Any], choice: int) -> str:
    """The right answer to each case of the sandbox's golden set."""
    asked = without_nonce(body["messages"][-1]["content"])
    return next(f"VERDICT: {score:+d}\nHINT: none".replace("+0", "0") for text, score in RIGHT if text == asked)


def without_nonce(text: str) -> str:
    return re.sub(r" [0-9a-f]{8}>", ">", text)


RIGHT = [
    (without_nonce(messages[-1]["content"]), case.score)
    for case in golden.load(golden.SHIPPED)
    for messages in (golden.question(case).messages, golden.question(case).redacted or [{"content": ""}])
]


def test_rejudge_compares_and_stores_only_when_asked(journal: Journal, run: Run, flags: list[str]) -> None:
    told = run("judges", "rejudge", *flags, "--json").json
    assert (told["turns"], told["agreement"], told["changed"], "stored" in told) == (3, 1.0, 1, False)
    done = run("judges", "rejudge", *flags, "--store", "--since", "1970-01-01")
    assert "the judge is unchecked: its verdicts do not count (burnish judges check --judge j)" in done.error
    shown = done.out
    for text in ("judged again by j", "over 2 turns with two verdicts", "3 new verdicts stored", "base/abc"):
        assert text in shown
    with journal.read() as session:
        assert session.query(JudgementRow).count() == 6
    assert "no judged turns" in run("judges", "rejudge", *flags, "--since", "1h").error
    assert "expected a time (2026-11-21" in run("judges", "rejudge", "--since", "soon").error


def test_judges_are_listed_with_users_agreement(journal: Journal, run: Run) -> None:
    assert "1 of 1: 1.000 (95 %: 0.207 to 1.000)" in run("judges", "list").out
    (row,) = run("judges", "list", "--json").json
    assert (row["judge_id"], row["n_verdicts"], row["n_abstained"], row["agreement"]) == ("base/abc", 2, 1, 1.0)
    assert row["fitness"] is None
    with journal.write() as session:
        judge_checks.file(session, "base/abc", "base", "", "")
    assert run("judges", "list", "--json").json[0]["fitness"] == "unchecked"
    assert run("judges", "list", "--agent", "nobody", "--json").json == []


def test_turns_are_labelled_and_a_later_run_goes_on(
    journal: Journal, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed(monkeypatch, "x\n0\ns\n")  # a wrong key, a label, a skip, and the pipe ends
    done = run("judges", "label", "--output", "mine.jsonl")
    assert (
        "expected one of these keys, got 'x'" in done.out
        and "next state (user)" in done.out
        and "base/abc" not in done.out
    )
    assert "1 turn labelled, mine.jsonl holds 1 case" in done.error
    typed(monkeypatch, "+\n")
    assert "1 of 1 · a" in run("judges", "label", "--output", "mine.jsonl").out
    assert [(case.turn, case.score, case.origin) for case in golden.load(tmp_path / "mine.jsonl")] == [
        ("c", 0, "user"),
        ("a", 1, "user"),
    ]
    assert "no turns left to label" in run("judges", "label", "--output", "mine.jsonl").error


def test_what_users_have_rated_alike_becomes_a_golden_set(journal: Journal, run: Run, tmp_path: Path) -> None:
    add_feedback(journal, "b", -1.0)
    for key, rating in (("k-1", 1.0), ("k-2", -1.0)):
        add_feedback(journal, "c", rating, key_id=key)  # they disagree
    add_turn(journal, interaction([user("hi")], "hello", interaction_id="d"))
    add_feedback(journal, "d", 1.0)  # nothing came back, so there is nothing to judge
    for _ in range(2):
        done = run("judges", "label", "--rated", "--output", "mine.jsonl")
    assert "0 turns labelled, mine.jsonl holds 2 cases" in done.error
    assert [(case.turn, case.score) for case in golden.load(tmp_path / "mine.jsonl")] == [("b", -1), ("a", 1)]


def test_the_queue_of_turns_to_label_is_listed(journal: Journal, run: Run) -> None:
    shown = run("judges", "queue").out
    assert "so be it" in shown and "no bold" not in shown  # the judge abstained on `c`
    assert [each["turn"] for each in run("judges", "queue", "--why", "second", "--json").json] == ["a"]
    assert run("judges", "queue", "--agent", "nobody", "--json").json == []


def test_what_judges_cost_is_shown_by_day(journal: Journal, run: Run) -> None:
    counts = {"n_requests": 400, "n_votes": 1200, "n_prompt_tokens": 250_000, "n_answer_tokens": 9000, "seconds": 90.5}
    with journal.write() as session:
        for day, agent in (("2001-01-01", "agent"), (time.strftime("%Y-%m-%d", time.gmtime()), "agent")):
            session.add(JudgeCostRow(day=day, agent=agent, model="openai/gpt-5", purpose="turns", **counts))
    shown = run("judges", "cost").out
    assert "250,000" in shown and "openai/gpt-5" in shown and "2001-01-01" not in shown
    assert [row["n_votes"] for row in run("judges", "cost", "--since", "2000-01-01", "--json").json] == [1200, 1200]
    assert run("judges", "cost", "--agent", "nobody", "--json").json == []


def test_a_golden_set_that_is_broken_is_told_before_anything_is_asked(
    journal: Journal, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "golden.jsonl").write_text("{")
    assert "golden.jsonl, line 1: expected one JSON object" in run("judges", "label").error


def test_moments_are_dates_or_ages() -> None:
    assert moment("90m", now=10_000.0) == 4600.0
    assert moment("1.5d", now=200_000.0) == 70_400.0
    assert moment("2026-11-21T08:00+00:00") == 1795248000.0
    with pytest.raises(ConfigError, match="expected a time"):
        moment("yesterday")
