"""Means over seeds with bootstrap bounds. Pure functions: the same numbers give the same bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

N_RESAMPLES = 10_000
PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over `n` seeds with the bounds of its two-sided 95 % percentile interval."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def farthest(self) -> float:
        """The bound that lies farther from zero, with its sign."""
        return max(self.low, self.high, key=abs)


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed. Raises ValueError if there is none."""
    return ratio(values, [1.0] * len(values))


def ratio(over: Sequence[float], under: Sequence[float]) -> Estimate:
    """The ratio of two means, with seeds resampled in pairs. A bound is infinite if a resample's denominator is 0.

    Raises ValueError for empty lists or lists of different length.
    """
    if not over or len(over) != len(under):
        raise ValueError(f"expected one value a seed on either side, got {len(over)} and {len(under)}")
    above, below = np.asarray(over, dtype=float), np.asarray(under, dtype=float)
    picks = np.random.default_rng(0).integers(len(above), size=(N_RESAMPLES, len(above)))
    with np.errstate(divide="ignore", invalid="ignore"):
        means = above[picks].mean(axis=1) / below[picks].mean(axis=1)
        mean = float(above.mean() / below.mean())
    low, high = np.percentile(means, PERCENTILES, method="inverted_cdf")
    return Estimate(mean, float(low), float(high), len(above))


def paired(these: Mapping[int, float], those: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have, in the order of the seeds."""
    seeds = sorted(these.keys() & those.keys())
    return [these[seed] for seed in seeds], [those[seed] for seed in seeds]


def gain(these: Mapping[int, float], those: Mapping[int, float]) -> Estimate | None:
    """The mean of `these` minus `those`, paired by seed. None if no seed has both."""
    left, right = paired(these, those)
    return estimate([a - b for a, b in zip(left, right, strict=True)]) if left else None
