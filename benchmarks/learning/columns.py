"""From results to columns: an arm's scores and figures by seed, and their means with bounds as flat figures."""

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.learning.bounds import estimate
from benchmarks.learning.results import Result

ByArm = Mapping[str, Mapping[int, Result]]
"""Results by arm and seed."""
BySeed = dict[int, float]
MIN_SEEDS = 8
"""The fewest seeds behind a bar's figure."""


class Measured(NamedTuple):
    """A bar's figure and the number of seeds behind it. It counts only with at least `MIN_SEEDS` seeds."""

    value: float
    n: int


def scores(results: ByArm, arm: str, n: int) -> BySeed:
    """The arm's score after `n` interactions or sessions, by seed."""
    return {seed: result.scores[n] for seed, result in results.get(arm, {}).items() if n in result.scores}


def counted(results: ByArm, arm: str, key: str) -> BySeed:
    """One of the arm's figures, by seed."""
    return {seed: result.figures[key] for seed, result in results.get(arm, {}).items() if key in result.figures}


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


def shown(measured: Mapping[str, Measured]) -> dict[str, float]:
    """The bars' figures that have enough seeds."""
    return {key: each.value for key, each in measured.items() if each.n >= MIN_SEEDS}
