"""The report: bounds against bars, too few seeds, missing arms, pictures, the command line."""

import argparse
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.learning import __main__ as command
from benchmarks.learning import frozen
from benchmarks.learning.part import Shown
from benchmarks.learning.results import Result, Results
from benchmarks.learning.style import figures, plots, report, world
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.part import TABLES

FINAL = {
    "off": 0.1,
    "binary": 0.8,
    "combined": 0.95,
    "combined+groups": 0.97,
    "memory": 0.1,
    "memory+lora": 0.9,
    "shuffled": 0.12,
    "hints_shuffled": 0.1,
}


def results_of(n_seeds: int, arms: dict[str, float] = FINAL) -> figures.ByArm:
    def one(arm: str, final: float, seed: int) -> Result:
        scores = {n: 0.1 + (final - 0.1) * n / 512 + 0.001 * (seed % 2) for n in world.MILESTONES}
        own = {
            "unseen": final,
            "seen": 0.93 if "memory" in arm else final,
            "retention": 0.97,
            "judge_calls": 1400.0,
            "n_failed": 0.0,
        }
        return Result(arm, seed, ARMS[arm].flags(seed), scores, own)

    return {arm: {seed: one(arm, final, seed) for seed in range(n_seeds)} for arm, final in arms.items()}


def printed(results: figures.ByArm) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    report.show(console, results, "abc123")
    return console.export_text()


def test_figures_are_the_bounds_that_are_harder_on_us() -> None:
    measured = figures.barred(results_of(8))

    assert measured["style_score_512"].value == pytest.approx(0.95, abs=0.002)
    assert measured["style_score_512"].value < 0.9505  # the lower bound, below the mean of .9505
    assert measured["control_shuffled_score"].value > 0.1205  # the upper bound, above the mean
    assert measured["gain_256"].value == pytest.approx(0.085)  # of the arm with groups over binary, half-way
    assert measured["unseen_ratio"].value == pytest.approx(9.5)
    assert {each.n for each in measured.values()} == {8}


def test_enough_seeds_show_bars_as_met_or_missed() -> None:
    reported = Shown(TABLES, results_of(8), "abc")

    assert reported.figures()["style_score_512"] > 0.9
    assert reported.figures()["n_seeds"] == 8
    assert reported.unmet() == ["style_score_256"]


def test_a_bar_is_never_met_by_fewer_than_eight_seeds() -> None:
    reported = Shown(TABLES, results_of(7), "abc")

    assert set(reported.unmet()) == {key for _, key, _, _ in report.BARS} - {report.AIM}
    assert not {key for _, key, _, _ in report.BARS} & reported.figures().keys()
    assert reported.figures()["combined_score_512"] == pytest.approx(0.95, abs=0.01)
    assert "too few seeds (7)" in printed(results_of(7))


def test_a_control_that_learns_fails_its_bar() -> None:
    reported = Shown(TABLES, results_of(8, {**FINAL, "off": 0.3, "shuffled": 0.4, "hints_shuffled": 0.3}), "abc")

    assert {"control_off_change", "control_shuffled_score", "control_hints_gain"} <= set(reported.unmet())


def test_missing_arms_are_named_and_break_nothing() -> None:
    text = printed(results_of(8, {"combined": 0.95}))

    assert "no results: off, binary, opd, binary+groups, opd+groups, combined+groups, memory" in text
    assert "SIMULATED" in text
    assert "world abc123" in text
    assert "too few seeds (0)" in text
    assert "0.95 [0.95, 0.95]" in text


def test_nothing_at_all_is_a_report_too() -> None:
    assert "no results: off" in printed({})


def test_an_arm_with_few_seeds_says_so() -> None:
    results = {**results_of(8), **{"opd": results_of(2, {"opd": 0.4})["opd"]}}

    cells = [[cell.strip() for cell in line.split("│")[1:3]] for line in printed(results).splitlines()]
    assert ["opd", "2"] in cells


def test_runs_that_ended_early_count_where_they_came_to_and_are_told_apart() -> None:
    results = results_of(8)
    cut = {
        arm: {seed + 8: Result(arm, seed + 8, {}, {0: 0.1, 256: 0.6}, {"n_failed": 0.0}) for seed in range(4)}
        for arm in FINAL
    }
    results = {arm: {**by_seed, **cut[arm]} for arm, by_seed in results.items()}

    measured = figures.barred(results)
    assert (measured["gain_256"].n, measured["style_score_512"].n, measured["retention"].n) == (12, 8, 8)
    assert "12, 8 to the end" in printed(results)


def test_pictures_name_simulated_users_and_n(tmp_path: Path) -> None:
    paths = plots.draw(tmp_path / "plots", results_of(3))

    assert [path.name for path in paths] == ["style.png", "style.svg"]
    assert all(path.stat().st_size > 5_000 for path in paths)
    assert "SIMULATED" in plots.CAPTION
    assert plots.draw(tmp_path / "none", {}) == []


def test_the_command_reports_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path / "style", frozen.digest(world.FILES))
    for by_seed in results_of(2).values():
        for result in by_seed.values():
            results.write(result)
    arguments = [
        "--report", "--home", str(tmp_path), "--summaries", str(tmp_path / "s"),
        "--json", str(tmp_path / "f.json"), "--plots", str(tmp_path / "p"),
    ]  # fmt: skip

    with pytest.raises(SystemExit) as ended:
        command.main(arguments)

    assert ended.value.code == 1  # two seeds show nothing
    kept = json.loads((tmp_path / "f.json").read_text())
    assert kept["combined_n_seeds"] == 2
    assert sorted(path.stem for path in (tmp_path / "s" / "style").iterdir()) == sorted(FINAL)
    assert frozen.digest(world.FILES) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [0, 1, 2]), ("2-4", [2, 3, 4]), ("0,5", [0, 5]), ("7-8,2,4-4", [7, 8, 2, 4])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert command.seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["a few", "0", "-1", "1-", "0,", "4-2", "1-2-3", "1-3,2"])
def test_bad_seeds_name_the_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected 8 .*0-0 for seed 0"):
        command.seeds_of(text)


@pytest.mark.parametrize(
    "more", [["--only", "tools", "--until", "160"], ["--until", "256"], ["--only", "style", "--until", "100"]]
)
def test_an_early_end_that_no_run_has_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(more)

    assert ended.value.code == 2
    assert "only runs of style after 64, 128, 256, 384 can end early" in capsys.readouterr().err


def test_unknown_arms_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--arms", "binry"])

    assert "no arm binry; the arms are binary" in capsys.readouterr().err
