"""From results to figures: per arm and key over the seeds, and the lower bound behind the bar."""

from benchmarks.learning.bounds import estimate, gain
from benchmarks.learning.columns import MIN_SEEDS, ByArm, counted, scores
from benchmarks.learning.columns import flat as spread
from benchmarks.learning.tools import world
from benchmarks.learning.tools.arms import OTHER, PRODUCT

LAST = world.MILESTONES[-1]
BAR, BESIDE, GAIN = f"tool_success_{LAST}", f"tool_outcome_only_{LAST}", f"tool_gain_{LAST}"
COUNTED = (
    "success_trained", "told_truly", "retention", "n_rewards",
    "n_step_rewards", "n_hints", "n_hints_refused", "judge_calls",
    "n_trained", "n_versions", "n_refused", "n_rolled_back",
    "n_requests", "n_failed", "n_late", "seconds", "seconds_waited",
)  # fmt: skip


def barred(results: ByArm) -> dict[str, float]:
    """Lower bounds of the product's success and of its gain over outcome alone, and that arm's mean.

    Each is present only with enough seeds.
    """
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
    """All figures, flat: `tool_arm_key`, `_low` and `_high` for its bounds, `tool_arm_n_seeds`."""
    found: dict[str, float] = {}
    for arm in results:
        name = f"tool_{arm.removeprefix('tools_')}"
        columns = {f"success_{n}": scores(results, arm, n) for n in world.MILESTONES}
        columns |= {key: counted(results, arm, key) for key in COUNTED}
        found |= spread(name, columns)
        found[f"{name}_n_seeds"] = len(results[arm])
    return found
