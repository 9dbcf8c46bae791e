"""The real model's report: bounds against bars, by hand, from results by hand; tables, pictures, the command line."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.learning.__main__ import main
from benchmarks.learning.columns import ByArm
from benchmarks.learning.part import Part, Shown
from benchmarks.learning.results import Result
from benchmarks.real_model import first, speed, trial
from benchmarks.real_model.__main__ import PARTS, REAL_MODEL
from benchmarks.real_model.continual import part as continual
from benchmarks.real_model.english import figures, world
from benchmarks.real_model.english.arms import ARMS, PRODUCT
from benchmarks.real_model.english.part import PART as ENGLISH

FINAL = {"off": 0.02, "rewards": 0.3, "hints": 0.7, "both": 0.9, "both+groups": 0.9, "shuffled": 0.05, "memory": 0.4}
COUNTS = {"n_failed": 0.0, "seconds": 60.0}


def english(n_seeds: int, arms: dict[str, float] = FINAL) -> ByArm:
    """Straight lines from 0 to the final score; the product has made two steps, half and twice as long as meant."""

    def one(arm: str, final: float, seed: int) -> Result:
        curves = {"kept": {512: 0.97}, "general": {512: 1.01}, "content": dict.fromkeys(world.MILESTONES, 0.9)}
        if arm == PRODUCT:
            curves |= {"step_kl": {1: 0.025, 2: 0.1}, "step_kl_target": {1: 0.05, 2: 0.05}}
        scores = {n: final * n / 512 for n in world.MILESTONES}
        return Result(arm, seed, ARMS[arm].flags(seed), scores, {**COUNTS, "score_prompted": 0.6}, curves)

    return {arm: {seed: one(arm, final, seed) for seed in range(n_seeds)} for arm, final in arms.items()}


def simple(part: Part, arm: str, seed: int, scores: dict[int, float], more: dict[str, Any] | None = None) -> Result:
    return Result(arm, seed, part.arms[arm].flags(seed), scores, {**COUNTS, **(more or {})})


def printed(part: Part, results: ByArm) -> str:
    console = Console(width=220, file=io.StringIO(), record=True)
    part.tables.show(console, results, "abc123")
    return console.export_text()


def test_enough_seeds_show_each_bar_as_met_or_missed() -> None:
    shown = Shown(ENGLISH.tables, english(4), "abc")

    found = shown.figures()
    assert {key: found[key] for _, key, _, _ in figures.BARS} == pytest.approx(
        {
            "real_score_128": 0.225,
            "real_score_256": 0.45,
            "real_score_512": 0.9,
            "real_of_prompted": 1.5,
            "real_gain_128": 0.15,
            "kept": 0.97,
            "control_off_change": 0.02,
            "control_shuffled_score": 0.05,
            "step_kl_low": 0.5,
            "step_kl_high": 2.0,
        }
    )
    assert shown.unmet() == ["real_score_128", "real_score_256", "step_kl_high"]
    assert found["both_kept_512_low"] == 0.97
    assert found["both_groups_n_seeds"] == 4


def test_a_lower_bound_by_hand() -> None:
    """Of four draws from 0.6, 1, 1, 1 all are 0.6 with 0.4 %, at least three with 5.1 %: 2.5 % lies at three."""
    results = english(4)
    before = results[PRODUCT]
    ended = {seed: _ended(each, 1.0 if seed < 3 else 0.6) for seed, each in before.items()}
    results = {**results, PRODUCT: ended}

    assert figures.barred(results)["real_score_512"].value == pytest.approx((3 * 0.6 + 1.0) / 4)


def _ended(result: Result, score: float) -> Result:
    return Result(
        result.arm, result.seed, result.settings, {**result.scores, 512: score}, result.figures, result.curves
    )


def test_a_bar_is_never_met_by_too_few_seeds() -> None:
    shown = Shown(ENGLISH.tables, english(3), "abc")

    assert set(shown.unmet()) == {key for _, key, _, _ in figures.BARS}
    assert "too few seeds (3)" in printed(ENGLISH, english(3))


def test_runs_that_ended_early_count_where_they_came_to() -> None:
    cut = Result(PRODUCT, 9, ARMS[PRODUCT].flags(9), {0: 0.0, 128: 0.5}, COUNTS, {"kept": {128: 0.99}})
    results = {**english(4), PRODUCT: {**english(4)[PRODUCT], 9: cut}}

    measured = figures.barred(results)
    assert (measured["real_score_128"].n, measured["real_score_512"].n, measured["kept"].n) == (5, 4, 4)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_nothing_at_all_is_a_report_too(part: Part, tmp_path: Path) -> None:
    text = printed(part, {})

    assert "SIMULATED" in text and "world abc123" in text
    assert f"no results: {', '.join(part.arms)}" in text
    assert part.tables.draw(tmp_path, {}) == []


def of_populations(arm: str, seed: int, first_scores: tuple[float, float], general: float) -> Result:
    after, end = first_scores
    curves = {
        "score_1": {0: 0.0, 128: after, 256: after, 384: end},
        "score_2": {0: 0.1, 128: 0.1, 256: 0.6, 384: 0.6},
        "score_3": {0: 0.2, 128: 0.2, 256: 0.2, 384: 0.7},
        "general": {128: 1.0, 256: 1.0, 384: general},
    }
    return Result(arm, seed, continual.ARMS[arm].flags(seed), curves["score_1"], COUNTS, curves)


def test_continual_use_compares_the_first_wishes_at_the_end_with_their_own_end(tmp_path: Path) -> None:
    results = {
        "gated": {seed: of_populations("gated", seed, (0.8, 0.72), 0.98) for seed in range(2)},
        "ungated": {seed: of_populations("ungated", seed, (0.8, 0.4), 0.5) for seed in range(2)},
    }
    shown = Shown(continual.PART.tables, results, "abc")

    found = shown.figures()
    assert (found["continual_kept"], found["continual_general"]) == pytest.approx((0.9, 0.98))
    assert (found["continual_kept_ungated"], found["continual_general_ungated"]) == pytest.approx((0.5, 0.5))
    assert shown.unmet() == []  # what is printed beside has no bar
    assert [path.name for path in shown.draw(tmp_path)] == ["continual.png", "continual.svg"]


def test_the_engines_share_is_of_the_best_bare_one() -> None:
    speeds = {"ours": (12.0, 66.0), "bare-1": (12.5, 58.0), "bare-2": (10.0, 60.0)}
    results = {
        arm: {seed: simple(speed.PART, arm, seed, {1: one, 8: eight}) for seed in range(3)}
        for arm, (one, eight) in speeds.items()
    }
    shown = Shown(speed.PART.tables, results, "abc")

    assert shown.figures()["engine_share_1"] == pytest.approx(12.0 / 12.5)
    assert shown.figures()["engine_share_8"] == pytest.approx(66.0 / 60.0)
    assert shown.unmet() == []
    assert set(speed.barred({arm: each for arm, each in results.items() if arm != "bare-2"})) == set()


def test_trials_and_the_first_version_are_means_over_runs() -> None:
    results = {
        "idle": {seed: simple(trial.PART, "idle", seed, {trial.N: 15.0 + 10.0 * seed}) for seed in range(2)},
        "busy": {0: simple(trial.PART, "busy", 0, {trial.N: 61.0})},
    }
    shown = Shown(trial.PART.tables, results, "abc")
    assert (shown.figures()["trial_s"], shown.figures()["trial_busy_s"]) == (20.0, 61.0)
    assert shown.unmet() == ["trial_busy_s"]

    runs = {seed: simple(first.PART, first.ARM, seed, {1: 30.0 + seed}, {"minutes": 5.0}) for seed in range(2)}
    assert first.barred({first.ARM: runs})["replies_to_first_version"].value == 30.5
    assert Shown(first.PART.tables, {first.ARM: runs}, "abc").unmet() == []


def test_the_command_reports_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ENGLISH.results(tmp_path)
    for by_seed in english(2).values():
        for result in by_seed.values():
            results.write(result)
    arguments = [
        "--report", "--home", str(tmp_path), "--summaries", str(tmp_path / "s"),
        "--json", str(tmp_path / "f.json"), "--plots", str(tmp_path / "p"),
    ]  # fmt: skip

    with pytest.raises(SystemExit) as ended:
        main(arguments, REAL_MODEL)

    assert ended.value.code == 1  # two seeds show nothing
    assert json.loads((tmp_path / "f.json").read_text())["both_n_seeds"] == 2
    assert sorted(path.stem for path in (tmp_path / "s" / "english").iterdir()) == sorted(FINAL)
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["english.png", "english.svg"]
    assert results.world in capsys.readouterr().out.replace("\n", "")
