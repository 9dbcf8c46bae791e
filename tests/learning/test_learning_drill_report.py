"""The drill's report: the bar's bound, too few seeds, missing arms, pictures, the command line."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.learning import __main__ as command
from benchmarks.learning import frozen
from benchmarks.learning.drill import figures, plots, report, world
from benchmarks.learning.drill.arms import ALSO_BARRED, ARMS, BARRED
from benchmarks.learning.drill.part import PART, TABLES
from benchmarks.learning.part import Shown
from benchmarks.learning.results import Result, Results


def result_of(arm: str, seed: int, depth: float) -> Result:
    """Rises to .9, falls by `depth` (and by .3 more in the learner), and stays there."""
    looks = range(0, 512 + 1, 16)
    served = {n: 0.1 + 0.8 * min(n, 256) / 256 - (depth if n > 256 else 0.0) for n in looks}
    learner = {n: score - (0.3 if n > 256 else 0.0) for n, score in served.items()}
    own = {"rollbacks": 1.0 + seed % 2, "refused": 5.0, "retention": 0.97, "n_failed": 0.0}
    return Result(
        arm,
        seed,
        ARMS[arm].flags(seed),
        served,
        own,
        {"learner": learner, "once": served, "live": dict.fromkeys(looks, 1.0)},
    )


def results_of(n_seeds: int, depth: float = 0.03, arms: tuple[str, ...] = tuple(ARMS)) -> figures.ByArm:
    return {arm: {seed: result_of(arm, seed, depth + 0.01 * (seed % 2)) for seed in range(n_seeds)} for arm in arms}


def printed(results: figures.ByArm) -> str:
    console = Console(width=220, file=io.StringIO(), record=True)
    report.show(console, results, "abc123")
    return console.export_text()


def test_the_bar_is_read_off_the_upper_bound() -> None:
    reported = Shown(TABLES, results_of(8), "abc")

    assert 0.035 < reported.figures()["served_drop"] <= 0.04
    assert reported.figures()["defended_25_served_drop"] == pytest.approx(0.035)
    assert reported.figures()["defended_25_served_drop_most"] == pytest.approx(0.04)
    assert reported.figures()["defended_25_learner_drop"] == pytest.approx(0.335)
    assert reported.unmet() == []


def test_a_deep_fall_misses_the_bar() -> None:
    assert Shown(TABLES, results_of(8, 0.2), "abc").unmet() == ["served_drop", *ALSO_BARRED]


def test_a_bar_is_never_met_by_fewer_than_eight_seeds() -> None:
    reported = Shown(TABLES, results_of(7), "abc")

    assert reported.unmet() == ["served_drop", *ALSO_BARRED]
    assert "served_drop" not in reported.figures()
    assert "too few seeds (7)" in printed(results_of(7))


def test_other_arms_do_not_count_for_the_bar() -> None:
    others = tuple(arm for arm in ARMS if arm not in (BARRED, *ALSO_BARRED.values()))

    assert figures.barred(results_of(8, 0.5, others)) == {}


@pytest.mark.parametrize(("key", "arm"), ALSO_BARRED.items())
def test_each_attacker_has_a_figure_of_its_own(key: str, arm: str) -> None:
    reported = {arm: {seed: result_of(arm, seed, 0.2) for seed in range(8)}, **results_of(8, arms=(BARRED,))}
    assert figures.barred(reported)[key].value == pytest.approx(0.2)
    assert figures.barred(reported)["served_drop"].value < 0.05
    assert figures.worth(reported, arm) == {}


def test_defences_are_weighed_against_the_undefended_arm_of_the_same_share() -> None:
    bare = {seed: result_of("undefended-25", seed, 0.5 + 0.1 * (seed % 2)) for seed in range(6)}
    reported = {**results_of(8, 0.0, ("defended-25", "unexamined-40")), "undefended-25": bare}

    over = figures.worth(reported, "defended-25")
    assert over["served_last"].n == 6  # seeds that both have
    assert over["served_last"].mean == pytest.approx(0.5 + 0.1 / 2 - 0.01 / 2)
    assert over["served_drop"].mean == pytest.approx(-over["served_last"].mean)
    assert over["served_last"].low < over["served_last"].mean < over["served_last"].high
    assert figures.worth(reported, "undefended-25") == figures.worth(reported, "unexamined-40") == {}
    assert figures.flat(reported)["defended_25_over_undefended_served_last"] == pytest.approx(over["served_last"].mean)
    assert "what is served, over undefended" in printed(reported)
    assert "+0.54 [+0.5" in printed(reported)
    assert "over undefended" not in printed(results_of(8, arms=("defended-25", "undefended-40")))


def test_the_report_says_what_it_is_and_what_is_missing() -> None:
    text = printed(results_of(2, arms=("defended-25", "undefended-25")))

    assert "SIMULATED users" in text
    assert "real vLLM" in text
    assert "world abc123" in text
    assert "no results: undefended-0, unexamined-0, defended-0, undefended-10" in text
    assert "0.03 [0.03, 0.04]" in text or "0.04 [0.03, 0.04]" in text


def test_nothing_at_all_is_a_report_too() -> None:
    assert "no results: undefended-0" in printed({})


def test_pictures_name_simulated_users(tmp_path: Path) -> None:
    paths = plots.draw(tmp_path / "plots", results_of(2, arms=("defended-25", "undefended-0")))

    assert [path.name for path in paths] == ["drill.png", "drill.svg"]
    assert all(path.stat().st_size > 5_000 for path in paths)
    assert "SIMULATED" in plots.CAPTION
    assert plots.draw(tmp_path / "none", {}) == []


def test_results_are_kept_with_both_curves(tmp_path: Path) -> None:
    results, result = Results(tmp_path, "w" * 64), result_of("defended-10", 3, 0.1)
    results.write(result)

    assert results.find("defended-10", 3, ARMS["defended-10"].flags(3)) == result
    assert set(PART.shown(PART.summaries(results)).results) == {"defended-10"}


def test_the_command_reports_the_drill_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path / "drill", frozen.digest(world.FILES))
    results.write(result_of(BARRED, 0, 0.1))

    with pytest.raises(SystemExit) as ended:
        command.main(
            [
                "--report",
                "--only",
                "drill",
                "--home",
                str(tmp_path),
                "--summaries",
                str(tmp_path / "s"),
                "--json",
                str(tmp_path / "f.json"),
            ]
        )

    assert ended.value.code == 1  # one seed shows nothing
    kept = json.loads((tmp_path / "f.json").read_text())
    assert kept["defended_25_served_drop"] == pytest.approx(0.1)
    assert frozen.digest(world.FILES) in capsys.readouterr().out.replace("\n", "")


def test_arms_of_one_part_start_no_runs_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def work(jobs: list[command.Job], *_: object) -> list[str]:
        asked.extend(job.name for job in jobs)
        return []

    monkeypatch.setattr("benchmarks.learning.queue.work", work)
    with pytest.raises(SystemExit):
        command.main(["--arms", f"combined,{BARRED}", "--seeds", "0-0", "--home", str(tmp_path)])

    assert asked == ["combined 0", f"{BARRED} 0"]
