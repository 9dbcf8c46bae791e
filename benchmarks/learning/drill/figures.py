"""From results to figures: how deep a curve falls, per arm over the seeds that are there, and the bar's own figure by
its bound."""

from collections.abc import Mapping
from itertools import pairwise

from benchmarks.learning.bounds import Estimate, estimate, gain
from benchmarks.learning.columns import ByArm, BySeed, Measured
from benchmarks.learning.columns import flat as spread
from benchmarks.learning.drill.arms import ARMS, BARRED, Defence
from benchmarks.learning.results import Result

CURVES = ("served", "learner", "once")
COUNTED = (
    "rollbacks", "refused", "retention", "n_published", "n_promoted", "n_yellow", "n_red", "n_capped", "n_released", "n_resumed",
    "n_requests", "n_failed", "n_late", "seconds",
)  # fmt: skip
WORTH = ("served_best", "served_last", "served_drop", "retention")


def drop(curve: Mapping[int, float]) -> float:
    """The deepest fall of a score under its best that lasts for longer than one period of the gate; 0 where there is
    none.

    `curve` has a score by interactions, one look a period. A fall at a look is the best score up to it, less its own.
    One that is there at two looks in a row began before the first and has not ended at the second, so it lasts for
    longer than the period between: it counts with the lesser of both. What a single look sees does not count, and
    neither does what only the last one sees: how long that would have lasted nobody knows. Pairs are all there is to
    look at: over three looks in a row the least is no larger.
    """
    return max((min(pair) for pair in pairwise(falls(curve))), default=0.0)


def falls(curve: Mapping[int, float]) -> list[float]:
    """By look, in the order of the interactions: the best score up to it, less its own; 0 at the best."""
    best, found = float("-inf"), []
    for _, score in sorted(curve.items()):
        best = max(best, score)
        found.append(best - score)
    return found


def curve_of(result: Result, name: str) -> Mapping[int, float]:
    """By interactions, the score of what was `served`, of the `learner`'s newest version, or of what was served by
    prompts' first replies alone (`once`).
    """
    return result.scores if name == "served" else result.curves[name]


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """All figures of an arm by seed; absent where no seed has one."""
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
    """By seed, a curve's score after `n` interactions."""
    curves = {seed: curve_of(result, name) for seed, result in results.get(arm, {}).items()}
    return {seed: curve[n] for seed, curve in curves.items() if n in curve}


def worth(results: ByArm, arm: str) -> dict[str, Estimate]:
    """What an arm's defences change against the undefended arm of the same share of liars, paired by seed: `WORTH`, the
    figure less the undefended one's. Empty for an undefended arm and where no seed has both.
    """
    bare = f"{Defence.NONE}-{arm.rpartition('-')[2]}"
    if arm == bare:
        return {}
    these, those = columns(results, arm), columns(results, bare)
    found = {key: gain(these.get(key, {}), those.get(key, {})) for key in WORTH}
    return {key: told for key, told in found.items() if told}


def flat(results: ByArm) -> dict[str, float]:
    """Everything that is there: `arm_key`, `_low` and `_high` for its bounds, `_most` for the worst seed's drop,
    `arm_n_seeds`; `arm_over_undefended_key` for what its defences change (`worth`).
    """
    found: dict[str, float] = {}
    for arm in results:
        name = arm.replace("-", "_")
        by_key = columns(results, arm)
        found |= spread(name, by_key)
        found |= {f"{name}_{key}_most": max(by_key[key].values()) for key in by_key if key.endswith(("_drop", "_fall"))}
        found[f"{name}_n_seeds"] = len(results[arm])
        for key, told in worth(results, arm).items() if arm in ARMS else ():
            over = f"{name}_over_{Defence.NONE}_{key}"
            found |= {over: told.mean, f"{over}_low": told.low, f"{over}_high": told.high}
    return found


def barred(results: ByArm) -> dict[str, Measured]:
    """The figure that has a bar: the upper bound, which is harder on us. Left out where no seed is there."""
    by_seed = columns(results, BARRED).get("served_drop", {})
    return {"served_drop": Measured(estimate(list(by_seed.values())).high, len(by_seed))} if by_seed else {}
