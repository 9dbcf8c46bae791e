"""docs/results: small, and docs/explanation/learning.md says what its summaries say."""

import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks.learning import summaries
from benchmarks.learning.__main__ import PARTS, seeds_of
from benchmarks.real_model.__main__ import PARTS as REAL_MODEL

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
TABLE = (
    (DOCS / "explanation" / "learning.md").read_text(encoding="utf-8").partition("## The bars")[2].partition("\n## ")[0]
)
ROWS = re.findall(r"^\|.*\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|[^|]*\| ([^|]+) \|$", TABLE, re.MULTILINE)


@cache
def figures(seeds: str) -> dict[str, float]:
    """All parts' figures over these seeds."""
    read = summaries.read(RESULTS)
    shown = [part.shown(read, seeds_of(seeds)) for part in PARTS]
    return {key: value for each in shown for key, value in each.figures().items()}


def cases() -> list[tuple[str, str, str]]:
    """Key, figure and seeds of the table of bars; "the same" are the seeds of the row before."""
    found, seeds = [], ""
    for keys, texts, given in ROWS:
        seeds = seeds if given == "the same" else given.replace("–", "-").replace(" ", "")
        found += [(key.strip("`"), text, seeds) for key, text in zip(keys.split(", "), texts.split(", "), strict=True)]
    return found


def test_results_are_summaries_and_pictures_alone() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]

    assert {path.suffix for path in files} == {".json", ".svg", ".md"}
    assert len(files) <= 60
    assert sum(path.stat().st_size for path in files) <= 1_500_000


SUMMARIES = sorted(path for path in RESULTS.rglob("*.json") if path.parent.name != summaries.OF_GPU)


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_each_file_can_be_read(path: Path) -> None:
    read = summaries.read(path)

    assert all(each.runs and each.part in {part.name for part in (*PARTS, *REAL_MODEL)} for each in read)
    if path.parent != RESULTS:
        assert [(each.part, each.arm) for each in read] == [(path.parent.name, path.stem)]


def test_the_table_of_bars_names_all_of_them() -> None:
    keys = {key for key, _, _ in cases()}

    assert {"style_score_512", "gain_256", "tool_success_320", "served_drop"} < keys
    assert len(keys) == 14


@pytest.mark.parametrize(("key", "text", "seeds"), cases())
def test_a_bars_figure_is_what_the_summaries_say(key: str, text: str, seeds: str) -> None:
    digits = len(text.partition(".")[2])

    assert round(figures(seeds)[key], digits) == float(text.replace("−", "-"))
