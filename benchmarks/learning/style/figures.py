"""From results to figures: per arm and key over the seeds, and the bounds behind the bars."""

from collections.abc import Callable

from benchmarks.learning.bounds import Estimate, estimate, gain, paired, ratio
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, scores
from benchmarks.learning.columns import flat as spread
from benchmarks.learning.style import world
from benchmarks.learning.style.arms import BASELINE, PRODUCT, WITH_GROUPS

LAST = world.MILESTONES[-1]
COUNTED = (
    "unseen", "seen", "retention", "retention_base",
    "sessions_until_three", "users_satisfied", "judge_calls", "shadow_tokens", "n_trained",
    "n_versions", "n_refused", "n_rolled_back", "n_requests", "n_failed", "n_late", "seconds", "seconds_waited",
)  # fmt: skip


def ends(results: ByArm, arm: str) -> str:
    """The number of an arm's seeds, and how many of them ran to the world's end if some were cut."""
    n, n_whole = len(results[arm]), len(scores(results, arm, LAST))
    return str(n) if n == n_whole else f"{n}, {n_whole} to the end"


def flat(results: ByArm) -> dict[str, float]:
    """All figures, flat: `arm_key`, `_low` and `_high` for its bounds, `arm_n_seeds`."""
    found: dict[str, float] = {}
    for arm in results:
        name = arm.replace("+", "_")
        columns = {f"score_{n}": scores(results, arm, n) for n in world.MILESTONES}
        columns |= {key: counted(results, arm, key) for key in COUNTED}
        found |= spread(name, columns)
        found[f"{name}_n_seeds"] = len(results[arm])
    return found


def barred(results: ByArm) -> dict[str, Measured]:
    """The figures with bars: the less favourable bound of each. Figures without seeds are left out."""

    def of(by_seed: BySeed) -> Estimate | None:
        return estimate(list(by_seed.values())) if by_seed else None

    def change(arm: str) -> Estimate | None:
        return gain(scores(results, arm, LAST), scores(results, arm, 0))

    unseen = paired(counted(results, PRODUCT, "unseen"), counted(results, "memory", "unseen"))
    asked: dict[str, tuple[Estimate | None, Callable[[Estimate], float]]] = {
        "style_score_128": (of(scores(results, PRODUCT, 128)), _low),
        "style_score_256": (of(scores(results, PRODUCT, 256)), _low),
        "style_score_512": (of(scores(results, PRODUCT, 512)), _low),
        "gain_256": (gain(scores(results, WITH_GROUPS, 256), scores(results, BASELINE, 256)), _low),
        "unseen_ratio": (ratio(*unseen) if unseen[0] else None, _low),
        "memory_lora_gain": (gain(counted(results, "memory+lora", "seen"), counted(results, "memory", "seen")), _mean),
        "retention": (of(counted(results, PRODUCT, "retention")), _low),
        "control_off_change": (change("off"), _farthest),
        "control_shuffled_score": (of(scores(results, "shuffled", LAST)), _high),
        "control_hints_gain": (change("hints_shuffled"), _high),
    }
    return {
        key: Measured(read(estimated), estimated.n) for key, (estimated, read) in asked.items() if estimated is not None
    }


def _low(estimated: Estimate) -> float:
    return estimated.low


def _high(estimated: Estimate) -> float:
    return estimated.high


def _mean(estimated: Estimate) -> float:
    return estimated.mean


def _farthest(estimated: Estimate) -> float:
    return estimated.farthest
