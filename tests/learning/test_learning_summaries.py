"""Summaries: read as written, merged by seed, replaced where world or settings differ, enough for the tables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import __main__ as command
from benchmarks.learning import summaries
from benchmarks.learning.drill.part import PART as DRILL
from benchmarks.learning.results import UNDER, Result, Results
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.part import PART
from benchmarks.learning.summaries import Summary
from burnish.errors import BurnishError

WORLD = "w" * 64


def run(arm: str, seed: int, score: float = 0.5, last: int = 512) -> Result:
    scores = {0: 0.1, last: score}
    return Result(arm, seed, ARMS[arm].flags(seed), scores, {"unseen": score, "n_failed": 0.0}, date="2026-11-24")


def summary(arm: str, *runs: Result, **changed: Any) -> Summary:
    settings = summaries.shared(ARMS[arm].flags(0))
    return replace(Summary("style", arm, WORLD, UNDER, settings, {each.seed: each for each in runs}), **changed)


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    curves = {"learner": {0: 0.1, 512: 1 / 3}}
    curved = replace(run("binary", 10), curves=curves)
    both = [summary("binary", run("binary", 3), curved), summary("off", run("off", 3))]
    summaries.write(tmp_path / "x.json", both)

    assert summaries.read(tmp_path / "x.json") == both


def test_a_folder_holds_a_file_for_each_arm(tmp_path: Path) -> None:
    both = [summary("binary", run("binary", 3)), summary("off", run("off", 3))]
    summaries.update(tmp_path, both)

    assert sorted(path.name for path in (tmp_path / "style").iterdir()) == ["binary.json", "off.json"]
    assert summaries.read(tmp_path) == both


def test_further_seeds_join_those_that_are_there_and_a_later_run_replaces_its_seed(tmp_path: Path) -> None:
    summaries.update(tmp_path, [summary("binary", run("binary", 3), run("binary", 4))])
    summaries.update(tmp_path, [summary("binary", run("binary", 4, 0.9), run("binary", 5))])

    [found] = summaries.read(tmp_path)
    assert {seed: each.scores[512] for seed, each in found.runs.items()} == {3: 0.5, 4: 0.9, 5: 0.5}


def test_fresh_runs_join_the_published_ones_of_their_arm_and_the_other_arms_stay() -> None:
    other, published = summary("off", run("off", 3)), summary("binary", run("binary", 3), run("binary", 4))
    found = summaries.merged([published, other], [summary("binary", run("binary", 4, 0.9))])

    assert [each.arm for each in found] == ["binary", "off"] and found[1] == other
    assert {seed: each.scores[512] for seed, each in found[0].runs.items()} == {3: 0.5, 4: 0.9}


def test_a_run_that_ended_early_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    summaries.update(tmp_path, [summary("binary", run("binary", 3))])
    summaries.update(tmp_path, [summary("binary", run("binary", 3, 0.9, last=128))])

    assert summaries.read(tmp_path)[0].runs[3].scores == {0: 0.1, 512: 0.5}


@pytest.mark.parametrize(
    "changed", [{"world": "x" * 64}, {"under": {}}, {"settings": {"learner.recipe.num_iterations": 9}}]
)
def test_runs_of_another_world_or_other_settings_are_never_mixed(tmp_path: Path, changed: dict[str, Any]) -> None:
    summaries.update(tmp_path, [summary("binary", run("binary", 3), **changed)])
    summaries.update(tmp_path, [summary("binary", run("binary", 4))])

    assert [list(each.runs) for each in summaries.read(tmp_path)] == [[4]]


def test_a_report_names_what_is_not_of_todays_arms() -> None:
    gone = replace(summary("binary", run("binary", 3)), arm="tried-once")
    today = PART.shown([]).world
    found = PART.shown([summary("off", run("off", 1), world=today), summary("combined", run("combined", 2)), gone])

    assert list(found.results) == ["off", "combined", "tried-once"]
    assert [note.rpartition(": ")[2] for note in found.notes] == ["combined", "tried-once"]
    assert found.world == ", ".join(sorted({WORLD, today}))


def test_a_part_shows_nothing_of_another() -> None:
    assert DRILL.shown([summary("off", run("off", 1))]).results == {}


def test_what_is_collected_are_all_runs_whatever_their_settings(tmp_path: Path) -> None:
    one, other = (
        run("binary", 3),
        replace(run("binary", 4), settings={"learner.recipe.num_iterations": 9, "learner.recipe.seed": 4}),
    )
    for world, each in (("a" * 64, run("off", 0)), (WORLD, one), (WORLD, run("binary", 5)), (WORLD, other)):
        Results(tmp_path / "style", world).write(each)

    cache = tmp_path / "style" / "w" / "cache" / "answers-5.json"  # what a benchmark keeps beside its runs
    cache.parent.mkdir(parents=True)
    cache.write_text("[1, 2]")
    found = summaries.collect(tmp_path)
    assert [(each.arm, each.world[0], sorted(each.runs)) for each in found] == [
        ("off", "a", [0]),
        ("binary", "w", [3, 5]),
        ("binary", "w", [4]),
    ]
    assert found[2].settings == {"learner.recipe.num_iterations": 9}
    assert found[1].runs[3] == one


def test_a_collected_file_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Results(tmp_path / "style", WORLD).write(run("binary", 3, 0.75))
    kept, figures = tmp_path / "kept.json", tmp_path / "f.json"
    command.main(["--home", str(tmp_path), "--collect", str(kept)])
    with pytest.raises(SystemExit):
        command.main(["--report", "--home", str(tmp_path / "none"), "--summaries", str(kept), "--json", str(figures)])

    assert json.loads(figures.read_text())["binary_score_512"] == 0.75
    text = capsys.readouterr().out.replace("\n", " ")
    assert "measured in another world or with other settings than today's: binary" in text


def test_a_report_where_nothing_is_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        command.main(["--report", "--home", str(tmp_path / "none"), "--summaries", str(tmp_path / "s")])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "got"), [(None, "no file"), ('{"arm": "off"}', "other JSON")])
def test_what_is_no_summary_is_named(tmp_path: Path, text: str | None, got: str) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(BurnishError, match=rf"expected summaries of runs in .*x\.json, got {got}; check --summaries"):
        summaries.read(path)


def test_nothing_to_collect_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BurnishError, match=r"expected runs as .*<seed>\.json in .*, got none; check --home"):
        summaries.collect(tmp_path)
