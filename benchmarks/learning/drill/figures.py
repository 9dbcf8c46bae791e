"""From results to figures: how far a score falls, per arm over the seeds, and the bound behind the bar."""

from collections.abc import Mapping
from itertools import pairwise

from benchmarks.learning.bounds import Estimate, estimate, gain
from benchmarks.learning.columns import ByArm, BySeed, Measured
from benchmarks.learning.columns import flat as spread
from benchmarks.learning.drill.arms import ALSO_BARRED, ARMS, BARRED, Defence
from benchmarks.learning.results import Result

CURVES = ("served", "learner", "once")
COUNTED = (
    "rollbacks", "refused", "retention", "n_published", "n_promoted",
    "n_yellow", "n_red", "n_capped", "n_released", "n_resumed",
    "n_requests", "n_failed", "n_late", "seconds",
)  # fmt: skip
WORTH = ("served_best", "served_last", "served_drop", "retention")


def drop(curve: Mapping[int, float]) -> float:
    """The deepest fall of a score below its best that lasts longer than one period of the gate. 0 if there is none.

    `curve` has a score by interactions, one look a period. A fall at a look is the best score so far minus the score. A
    fall at two looks in a row began before the first and ended after the second, so it lasts longer than the period
    between them. It counts with the smaller of both. A fall at a single look does not count. Nor does one at the last
    look alone, because its length is unknown. Pairs are enough: over three looks in a row the minimum is no larger.
    """
    return max((min(pair) for pair in pairwise(falls(curve))), default=0.0)


def falls(curve: Mapping[int, float]) -> list[float]:
    """The best score so far minus the score, by look in the order of the interactions. 0 at the best."""
    best, found = float("-inf"), []
    for _, score in sorted(curve.items()):
        best = max(best, score)
        found.append(best - score)
    return found


def curve_of(result: Result, name: str) -> Mapping[int, float]:
    """A curve by interactions.

    `served` is of what is served, `learner` of the newest version, `once` of the first reply to each prompt of what is
    served.
    """
    return result.scores if name == "served" else result.curves[name]


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """All figures of an arm by seed. A figure is absent if no seed has it."""
    found: dict[str, BySeed] = {}
    for seed, result in sorted(results.get(arm, {}).items()):
        one = {key: result.figures[key] for key in COUNTED if key in result.figures}
        for name in CURVES:
            curve = curve_of(result, name)
            one |= {
                f"{name}_drop": drop(curve),
                f"{name}_fall": max(falls(curve)),
                f"{name}_best": max(curve.values()),
                f"{name}_last": curve[max(curve)],
            }
        for key, value in one.items():
            found.setdefault(key, {})[seed] = value
    return found


def at(results: ByArm, arm: str, name: str, n: int) -> BySeed:
    """A curve's score after `n` interactions, by seed."""
    curves = {seed: curve_of(result, name) for seed, result in results.get(arm, {}).items()}
    return {seed: curve[n] for seed, curve in curves.items() if n in curve}


def worth(results: ByArm, arm: str) -> dict[str, Estimate]:
    """The effect of an arm's defences: `WORTH`, each figure minus the undefended arm's, paired by seed.

    The undefended arm has the same share of liars. Empty for an undefended arm, and if no seed has both.
    """
    bare = f"{Defence.NONE}-{arm.rpartition('-')[2]}"
    if arm == bare or arm in ALSO_BARRED.values():
        return {}
    these, those = columns(results, arm), columns(results, bare)
    found = {key: gain(these.get(key, {}), those.get(key, {})) for key in WORTH}
    return {key: estimated for key, estimated in found.items() if estimated}


def flat(results: ByArm) -> dict[str, float]:
    """All figures, flat.

    `arm_key`, `_low` and `_high` for its bounds, `_most` for the worst seed's drop, `arm_n_seeds`, and
    `arm_over_undefended_key` for the effect of its defences (`worth`).
    """
    found: dict[str, float] = {}
    for arm in results:
        name = arm.replace("-", "_")
        by_key = columns(results, arm)
        found |= spread(name, by_key)
        found |= {f"{name}_{key}_most": max(by_key[key].values()) for key in by_key if key.endswith(("_drop", "_fall"))}
        found[f"{name}_n_seeds"] = len(results[arm])
        for key, estimated in worth(results, arm).items() if arm in ARMS else ():
            over = f"{name}_over_{Defence.NONE}_{key}"
            found |= {over: estimated.mean, f"{over}_low": estimated.low, f"{over}_high": estimated.high}
    return found


def barred(results: ByArm) -> dict[str, Measured]:
    """The figures with a bar: the upper bound, the less favourable one. A figure is absent if there is no seed."""
    found = {}
    for key, arm in {"served_drop": BARRED, **ALSO_BARRED}.items():
        by_seed = columns(results, arm).get("served_drop", {})
        if by_seed:
            found[key] = Measured(estimate(list(by_seed.values())).high, len(by_seed))
    return found
