"""How far two judges agree, and how far one can be trusted: pure functions of counts and verdicts."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

BINS = 10
Z95, Z99 = 1.959964, 2.575829
"""Standard deviations on each side of 95 and 99 % of a normal distribution."""


def kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Cohen's κ of (one, other) verdicts: agreement beyond chance. 1 is full agreement, 0 is chance.

    None if it is undefined: without pairs, or if both judges give the same single verdict throughout.
    """
    n = len(pairs)
    if not n:
        return None
    observed = sum(one == other for one, other in pairs) / n
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    by_chance = sum(ones[score] * others[score] for score in ones) / n**2
    return None if by_chance >= 1.0 else (observed - by_chance) / (1.0 - by_chance)


def kappa_interval(pairs: Sequence[tuple[int, int]], z: float = Z95) -> tuple[float, float] | None:
    """The interval of κ (95 % by default) for many pairs, by its large-sample variance (Fleiss, Cohen and Everitt
    1969). None if κ is undefined.
    """
    value = kappa(pairs)
    if value is None:
        return None
    n = len(pairs)
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    by_chance = sum(ones[score] * others[score] for score in ones) / n**2
    on, off = 0.0, 0.0
    for (one, other), count in Counter(pairs).items():
        if one == other:
            on += count / n * (1.0 - (ones[one] + others[one]) / n * (1.0 - value)) ** 2
        else:
            off += count / n * ((others[one] + ones[other]) / n) ** 2
    spread = on + (1.0 - value) ** 2 * off - (value - by_chance * (1.0 - value)) ** 2
    half = z * math.sqrt(max(0.0, spread) / n) / (1.0 - by_chance)
    return max(-1.0, value - half), min(1.0, value + half)


def calibration_error(outcomes: Iterable[tuple[float, bool]], bins: int = BINS) -> float | None:
    """The expected calibration error of (confidence, was it right): mean gap of confidence and share of right, weighted
    by bin.

    Bin k of `bins` holds confidences in (k/bins, (k+1)/bins]. The first one holds 0 as well. None without pairs.
    """
    held: dict[int, list[tuple[float, bool]]] = {}
    for confidence, is_right in outcomes:
        # the nudge keeps 0.7 · 10 = 7.000000000000001 in its bin
        held.setdefault(max(0, math.ceil(confidence * bins - 1e-9) - 1), []).append((confidence, is_right))
    n = sum(map(len, held.values()))
    if not n:
        return None
    gaps = (abs(sum(c for c, _ in bin_) - sum(right for _, right in bin_)) for bin_ in held.values())
    return sum(gaps) / n


def wilson(n_hits: int, n: int, z: float = Z95) -> tuple[float, float] | None:
    """Wilson's interval (95 % by default) of a share of `n_hits` in `n`. None if `n` is 0."""
    if not n:
        return None
    share, spread = n_hits / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)
