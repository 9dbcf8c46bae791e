"""From results to columns: an arm's scores and figures by seed, and their means with bounds as flat figures.

Also the bars on such figures. A bar is met only by a figure with enough seeds behind it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from benchmarks.bars import Bar, text
from benchmarks.learning.bounds import estimate
from benchmarks.learning.results import Result

ByArm = Mapping[str, Mapping[int, Result]]
"""Results by arm and seed."""
BySeed = dict[int, float]
MIN_SEEDS = 8
"""The fewest seeds behind a bar's figure."""


class Measured(NamedTuple):
    """A bar's figure and the number of seeds behind it."""

    value: float
    n: int


def scores(results: ByArm, arm: str, n: int) -> BySeed:
    """The arm's score after `n` interactions or sessions, by seed."""
    return {seed: result.scores[n] for seed, result in results.get(arm, {}).items() if n in result.scores}


def counted(results: ByArm, arm: str, key: str) -> BySeed:
    """One of the arm's figures, by seed."""
    return {seed: result.figures[key] for seed, result in results.get(arm, {}).items() if key in result.figures}


def curved(results: ByArm, arm: str, name: str, n: int) -> BySeed:
    """A point of one of the arm's further curves, by seed."""
    curves = {seed: result.curves.get(name, {}) for seed, result in results.get(arm, {}).items()}
    return {seed: curve[n] for seed, curve in curves.items() if n in curve}


def flat(name: str, columns: Mapping[str, BySeed]) -> dict[str, float]:
    """`name_key` for the mean of each non-empty column, `name_key_low` and `name_key_high` for its bounds."""
    found: dict[str, float] = {}
    for key, by_seed in columns.items():
        if by_seed:
            estimated = estimate(list(by_seed.values()))
            found |= {
                f"{name}_{key}": estimated.mean,
                f"{name}_{key}_low": estimated.low,
                f"{name}_{key}_high": estimated.high,
            }
    return found


def shown(measured: Mapping[str, Measured], n_min: int = MIN_SEEDS) -> dict[str, float]:
    """The bars' figures that have enough seeds."""
    return {key: each.value for key, each in measured.items() if each.n >= n_min}


def unmet_bars(bars: Sequence[Bar], measured: Mapping[str, Measured], n_min: int = MIN_SEEDS) -> list[str]:
    """The keys of bars that are missed or that have too few seeds."""
    figures = shown(measured, n_min)
    return [key for _, key, bar, is_met in bars if bar and not (key in figures and is_met(figures))]


def bars_table(
    bars: Sequence[Bar], measured: Mapping[str, Measured], n_min: int = MIN_SEEDS, title: str = "bars"
) -> Table:
    """The bars, each with its figure and whether it is met. A figure whose bar has no words is for comparison."""
    table = Table("what", "key", "figure", "n", "bar", "", title=title)
    figures = shown(measured, n_min)
    for what, key, bar, is_met in bars:
        n = measured[key].n if key in measured else 0
        value = text(measured[key].value) if key in measured else "–"
        verdict = ("✓" if is_met(figures) else "✗") if key in figures else f"too few seeds ({n})"
        table.add_row(what, key, value, str(n), bar, verdict if bar else "")
    return table
