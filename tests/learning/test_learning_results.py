"""Finished runs are kept and not repeated. Unfinished ones, and those of other settings or worlds, are not used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.learning import frozen
from benchmarks.learning.part import Choice
from benchmarks.learning.results import UNDER, Result, Results
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.part import PART


def finished(arm: str, seed: int, score: float = 0.5) -> Result:
    figures = {"unseen": score, "seen": score, "retention": 1.0, "judge_calls": 1500.0}
    return Result(arm, seed, ARMS[arm].flags(seed), {0: 0.1, 128: score, 256: score, 512: score}, figures)


def names(results: Results, choice: Choice) -> list[str]:
    return [job.name for job in PART.missing(results, choice)]


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    results, result = Results(tmp_path, "w" * 64), finished("binary", 3)
    results.write(result)

    assert results.find("binary", 3, ARMS["binary"].flags(3)) == result


def test_nothing_is_there_before_a_run_has_ended(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    (results.folder / "binary").mkdir(parents=True)
    (results.folder / "binary" / ".3.json.77.tmp").write_text('{"world"')  # a run that died while it wrote

    assert results.find("binary", 3, ARMS["binary"].flags(3)) is None
    assert results.all("binary", ARMS["binary"].flags) == {}


def test_a_result_of_other_settings_is_not_used(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    results.write(finished("binary", 3))

    assert results.find("binary", 3, {**ARMS["binary"].flags(3), "learner.learning_rate": 1.0}) is None
    assert results.all("binary", lambda seed: {"learner.recipe.seed": seed}) == {}


def test_a_result_over_other_settings_is_not_used(tmp_path: Path) -> None:
    Results(tmp_path, "w" * 64).write(finished("binary", 3))
    other = Results(tmp_path, "w" * 64, {**UNDER, "learner": {"passes": 9}})

    assert other.find("binary", 3, ARMS["binary"].flags(3)) is None


def test_a_result_of_another_world_is_not_used(tmp_path: Path) -> None:
    Results(tmp_path, "w" * 64).write(finished("binary", 3))
    # the folder's name is a part of the hash: even one that collides is told apart
    other = Results(tmp_path, "w" * 16 + "x" * 48)

    assert other.folder == Results(tmp_path, "w" * 64).folder
    assert other.find("binary", 3, ARMS["binary"].flags(3)) is None


def test_a_finished_run_is_not_made_again(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    results.write(finished("binary", 0))

    # seed by seed, so that all arms grow alike
    assert names(results, Choice(["off", "binary"], [0, 1], is_again=False)) == ["off 0", "off 1", "binary 1"]


def test_a_run_that_ended_early_is_enough_for_an_early_end_alone(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    results.write(Result("binary", 0, ARMS["binary"].flags(0), {0: 0.1, 256: 0.9}, {"n_failed": 0.0}))

    assert names(results, Choice(["binary"], [0], is_again=False, until=256)) == []
    assert names(results, Choice(["binary"], [0], is_again=False)) == ["binary 0"]
    (job,) = PART.missing(results, Choice(["binary"], [1], is_again=False, until=256))
    assert job.n_interactions == 256


def test_again_makes_all_of_them(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    results.write(finished("binary", 0))

    assert names(results, Choice(["binary"], [0], is_again=True)) == ["binary 0"]


def test_without_names_all_usual_arms_are_run(tmp_path: Path) -> None:
    asked = names(Results(tmp_path, "w" * 64), Choice(None, [0], is_again=False))

    assert {name.split()[0] for name in asked} == {name for name, arm in ARMS.items() if not arm.is_extra} != set(ARMS)


def test_shown_uses_what_is_there(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    for seed in (0, 4):
        results.write(finished("combined", seed))

    reported = PART.shown(PART.summaries(results))

    assert {arm: sorted(by_seed) for arm, by_seed in reported.results.items()} == {"combined": [0, 4]}


def test_shown_can_be_asked_of_some_seeds_alone(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    for seed in (0, 4, 5):
        results.write(finished("combined", seed))

    assert sorted(PART.shown(PART.summaries(results), [4, 5, 9]).results["combined"]) == [4, 5]
    assert PART.shown(PART.summaries(results), [9]).results == {}


async def test_a_run_that_ends_leaves_its_result_and_what_its_parts_said_and_nothing_else(tmp_path: Path) -> None:
    results = Results(tmp_path, "w")

    def leave(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "parts.log").write_text("said", encoding="utf-8")
        (folder / "journal.db").write_text("much", encoding="utf-8")

    async def play(arm: Any, seed: int, engine: Any, folder: Path, cache: Path, tell: Any) -> Result:
        leave(folder)
        return Result(arm.name, seed, arm.flags(seed), {512: 0.1}, {"n_failed": 0.0, "seconds": 1.0})

    part = replace(PART, play=play)
    (job,) = part.missing(results, Choice(["off"], [3], is_again=False))
    assert await job.play(None, lambda n, words="": None) == "0.10, 0 failed, 1 s"  # type: ignore[arg-type]
    assert part.missing(results, Choice(["off"], [3], is_again=False)) == []
    assert sorted(
        path.relative_to(results.folder).as_posix() for path in results.folder.rglob("*") if path.is_file()
    ) == [
        "off/3.json",
        "off/3.log",
    ]


def test_a_run_that_was_published_is_not_repeated(tmp_path: Path) -> None:
    results, choice = Results(tmp_path, frozen.digest(PART.world)), Choice(["binary", "off"], [0, 1], is_again=False)
    results.write(finished("binary", 0))
    published = PART.summaries(results)
    empty = Results(tmp_path / "another machine", results.world)

    assert [job.name for job in PART.missing(empty, choice, published)] == ["off 0", "binary 1", "off 1"]
    again = replace(choice, is_again=True)
    assert len(PART.missing(empty, again, published)) == 4
    other_settings = [replace(each, under={}) for each in published]
    other_world = [replace(each, world="x" * 64) for each in published]
    for others in (other_settings, other_world):
        assert len(PART.missing(empty, choice, others)) == 4
