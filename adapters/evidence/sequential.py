"""Sequential tests that stay valid at every look: evidence as e-processes. Pure, standard library only.

An e-process E is never negative, starts at 1, and has an expectation of at most 1 at any stopping time while its null
hypothesis holds. By Ville's inequality (J. Ville, 1939), P(E ever reaches 1/α) ≤ α. So acting when `peak` ≥ log(1/α) is
wrong with probability at most α, over any number of looks. All values are natural logarithms of E. The state of a test
is its `as_dict`; `Test(**state)` continues it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log, log1p
from typing import Any

DISCORDANT = ((0.6, 0.7), (0.75, 0.2), (0.9, 0.1))
"""(θ, weight): shares of discordant pairs that the baseline wins. A fall from 0.80 to 0.70 makes θ 0.63, a fall to 0.60
makes it 0.73. For some hundred discordant pairs, a bet slightly below the truth is best. The last entry catches a
version that answers nothing right within a dozen pairs.
"""
STAKES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares of the capital that a bettor stakes on each observation, in equal parts. Small shares suit small effects."""


@dataclass(slots=True)
class _Test:
    """`peak` is the highest value so far, so that a crossing between two looks is not lost."""

    def as_dict(self) -> dict[str, Any]:
        """The state, in a form that JSON keeps exactly."""
        return asdict(self)


@dataclass(slots=True)
class KnownBaseline(_Test):
    """Successes of a version against a baseline with a known rate p₀. Null: the rate is p₀ or higher.

    Wald's sequential probability ratio (A. Wald, 1945) of Bernoulli(p₁) to Bernoulli(p₀), p₁ = p₀ − δ, kept as an
    e-process. A success multiplies E by p₁/p₀ < 1, a failure by (1 − p₁)/(1 − p₀) > 1. A p₀ above 0.99 counts as 0.99,
    so that a single failure does not decide. p₁ is at least p₀/2. Below log(β/(1 − α)) Wald's test accepts the null:
    the version is healthy. A version that is worse by δ gets there with probability at most β.
    """

    rate: float
    delta: float
    n_good: int = 0
    n_bad: int = 0
    peak: float = 0.0

    def update(self, is_good: bool) -> None:
        """One more judged turn of the version."""
        if is_good:
            self.n_good += 1
        else:
            self.n_bad += 1
        self.peak = max(self.peak, self.log_e)

    @property
    def log_e(self) -> float:
        baseline = min(max(self.rate, 1e-6), 0.99)
        worse = max(baseline - self.delta, baseline / 2)
        return self.n_good * log(worse / baseline) + self.n_bad * log((1 - worse) / (1 - baseline))

    def is_healthy(self, alpha: float, beta: float) -> bool:
        """Wald's acceptance bound."""
        return self.log_e <= log(beta / (1 - alpha))


@dataclass(slots=True)
class Paired(_Test):
    """Pairs of a baseline's turn and a version's with unknown rates. Null: the version wins at least half of the
    discordant pairs.

    E = Σ_θ w(θ) · (2θ)^losses · (2(1 − θ))^wins over `DISCORDANT`: a one-sided mixture likelihood ratio against a fair
    coin (the sequential form of McNemar's test; H. Robbins, 1970, for mixtures). Ties do not count. The test is valid
    if the choice of pairs does not look at verdicts.
    """

    n_losses: int = 0
    n_wins: int = 0
    n_ties: int = 0
    peak: float = 0.0

    def update(self, baseline: bool, version: bool) -> None:
        """One more pair."""
        if baseline == version:
            self.n_ties += 1
            return
        if baseline:
            self.n_losses += 1
        else:
            self.n_wins += 1
        self.peak = max(self.peak, self.log_e)

    @property
    def log_e(self) -> float:
        return _log_sum([log(w) + self.n_losses * log(2 * t) + self.n_wins * log(2 * (1 - t)) for t, w in DISCORDANT])

    @property
    def n(self) -> int:
        """Pairs so far, ties included."""
        return self.n_losses + self.n_wins + self.n_ties


@dataclass(slots=True)
class BoundedMean(_Test):
    """Observations in [0, 1]. Null: given the past, the next mean is `limit` or less. Evidence means that it is higher.

    E = mean over stakes f of Π (1 + f · (x − limit)/limit): the capital of bettors who stake the share f of it on every
    observation (I. Waudby-Smith and A. Ramdas, 2024, "Estimating means of bounded random variables by betting").
    `capital` holds the logarithm of each.
    """

    limit: float
    capital: list[float] = field(default_factory=lambda: [0.0] * len(STAKES))
    n: int = 0
    peak: float = 0.0

    def update(self, value: float) -> None:
        """One more observation. Raises ValueError outside [0, 1]."""
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"expected an observation in [0, 1], got {value}")
        gain = (value - self.limit) / self.limit
        self.capital = [held + log1p(stake * gain) for held, stake in zip(self.capital, STAKES, strict=True)]
        self.n += 1
        self.peak = max(self.peak, self.log_e)

    @property
    def log_e(self) -> float:
        return _log_sum(self.capital) - log(len(STAKES))


def no_worse(delta: float) -> BoundedMean:
    """A test for pairs (update with `gain(baseline, version)`). Evidence: the version's rate is *not* lower by `delta`
    or more.

    Null: E[version − baseline] ≤ −δ, which for y = (1 + version − baseline)/2 is E[y] ≤ (1 − δ)/2.
    """
    return BoundedMean(limit=(1 - delta) / 2)


def gain(baseline: bool, version: bool) -> float:
    """A pair as an observation in [0, 1]: 1/2 for a tie."""
    return (1 + int(version) - int(baseline)) / 2


def larger(ratio: float) -> BoundedMean:
    """A test for pairs of amounts (update with `share`). Evidence: the version's are more than `ratio` times the
    baseline's.

    Null: the version's mean share of a pair's sum is ratio/(1 + ratio) or less.
    """
    return BoundedMean(limit=ratio / (1 + ratio))


def share(baseline: float, version: float) -> float:
    """The version's part of a pair of non-negative amounts. 1/2 if both are 0."""
    total = baseline + version
    return version / total if total > 0 else 0.5


def odds(log_e: float) -> str:
    """E in a readable form, however large it is."""
    return f"{exp(log_e):,.0f}" if log_e < 14 else f"10^{log_e / log(10):.0f}"


def _log_sum(logs: Sequence[float]) -> float:
    """log Σ exp."""
    top = max(logs)
    return top + log(sum(exp(each - top) for each in logs))
