"""From results to figures: per arm and key over the seeds that are there, and the bar's own figure by its lower bound."""

from collections.abc import Mapping

from benchmarks.learning.bounds import estimate, gain
from benchmarks.learning.results import Result
from benchmarks.learning.tools import world
from benchmarks.learning.tools.arms import OTHER, PRODUCT

ByArm = Mapping[str, Mapping[int, Result]]
"""Results by arm and seed."""
BySeed = dict[int, float]
LAST = world.MILESTONES[-1]
MIN_SEEDS = 8
"""Fewer show nothing."""
BAR, BESIDE, GAIN = f"tool_success_{LAST}", f"tool_outcome_only_{LAST}", f"tool_gain_{LAST}"
COUNTED = (
    "success_trained", "told_truly", "retention", "n_rewards", "n_step_rewards", "judge_calls", "n_trained", "n_versions", "n_refused",
    "n_rolled_back", "n_requests", "n_failed", "n_late", "seconds", "seconds_waited",
)  # fmt: skip


def scores(results: ByArm, arm: str, n: int) -> BySeed:
    """By seed, the arm's share of successes after `n` sessions."""
    return {seed: result.scores[n] for seed, result in results.get(arm, {}).items() if n in result.scores}


def counted(results: ByArm, arm: str, key: str) -> BySeed:
    """By seed, one of the arm's figures."""
    return {seed: result.figures[key] for seed, result in results.get(arm, {}).items() if key in result.figures}


def barred(results: ByArm) -> dict[str, float]:
    """Lower bounds of the product's success and of its gain over outcome alone, and that arm's mean: each where enough seeds are there."""
    product, other = scores(results, PRODUCT, LAST), scores(results, OTHER, LAST)
    found: dict[str, float] = {}
    if len(product) >= MIN_SEEDS:
        found[BAR] = estimate(list(product.values())).low
    if len(other) >= MIN_SEEDS:
        found[BESIDE] = estimate(list(other.values())).mean
    more = gain(product, other)
    if more is not None and more.n >= MIN_SEEDS:
        found[GAIN] = more.low
    return found


def flat(results: ByArm) -> dict[str, float]:
    """Everything that is there: `tool_arm_key`, `_low` and `_high` for its bounds, `tool_arm_n_seeds`."""
    found: dict[str, float] = {}
    for arm in results:
        name = f"tool_{arm.removeprefix('tools_')}"
        columns = {f"success_{n}": scores(results, arm, n) for n in world.MILESTONES}
        columns |= {key: counted(results, arm, key) for key in COUNTED}
        for key, by_seed in columns.items():
            if by_seed:
                told = estimate(list(by_seed.values()))
                found |= {f"{name}_{key}": told.mean, f"{name}_{key}_low": told.low, f"{name}_{key}_high": told.high}
        found[f"{name}_n_seeds"] = len(results[arm])
    return found
