"""The tables of the tool agent, from all available results."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar, text
from benchmarks.learning.bounds import Estimate, estimate, gain
from benchmarks.learning.columns import ByArm, counted, scores
from benchmarks.learning.tools import world
from benchmarks.learning.tools.arms import ARMS, OTHER, PRODUCT
from benchmarks.learning.tools.figures import BAR, BESIDE, GAIN, LAST, barred

BARS: tuple[Bar, ...] = ((f"success after {LAST} sessions, {PRODUCT}", BAR, "≥ 0.90", lambda f: f[BAR] >= 0.90),)
"""The figure is the lower bound."""
_SHOWN = (
    (f"success after {LAST} sessions, {OTHER} only (mean)", BESIDE),
    (f"{PRODUCT} over {OTHER} only, paired (lower bound)", GAIN),
)
_WORK = (
    "n_versions",
    "n_refused",
    "n_rolled_back",
    "n_trained",
    "n_step_rewards",
    "n_hints",
    "n_hints_refused",
    "n_failed",
    "n_late",
    "seconds",
)


def show(console: Console, results: ByArm, world_hash: str) -> None:
    """Print all tables and the names of arms without results."""
    console.print(f"Tool agent with exit codes: SIMULATED users, sandbox model; world {world_hash}", highlight=False)
    console.print(
        f"mean \\[lower, upper 95 % bootstrap bound] over seeds; scores are shares of {world.N_EXAM} held-out sessions "
        f"in which all {world.N_STEPS} calls worked\n"
    )
    available = [arm for arm in ARMS if results.get(arm)]
    curves = Table("arm", "n", *(f"after {n}" for n in world.MILESTONES), f"over {OTHER}, {LAST}", title="tool success")
    works = Table(
        "arm", "true answers", "retention", "versions", "refused",
        "rolled back", "trained turns", "step rewards", "hints", "refused hints",
        "failed", "late", "seconds", title="steps and costs",
    )  # fmt: skip
    for arm in available:
        more = gain(scores(results, arm, LAST), scores(results, OTHER, LAST)) if arm != OTHER else None
        means = [_of(scores(results, arm, at)) for at in world.MILESTONES]
        curves.add_row(arm, str(len(results[arm])), *means, _text(more))
        answers = [_of(counted(results, arm, key)) for key in ("told_truly", "retention")]
        works.add_row(arm, *answers, *(_mean(counted(results, arm, key)) for key in _WORK))
    for table in (curves, works):
        console.print(table)
    missing = [name for name in ARMS if name not in available]
    if missing:
        console.print(f"no results: {', '.join(missing)}\n", highlight=False)
    console.print(_bars(barred(results), len(scores(results, PRODUCT, LAST))))


def unmet(figures: Mapping[str, float]) -> list[str]:
    """The keys of bars that are missed or that have too few seeds."""
    return [key for _, key, _, is_met in BARS if not (key in figures and is_met(figures))]


def _bars(figures: Mapping[str, float], n_seeds: int) -> Table:
    table = Table("what", "key", "figure", "bar", "", title="tool bars")
    for what, key, bar, is_met in BARS:
        if key in figures:
            table.add_row(what, key, text(figures[key]), bar, "✓" if is_met(figures) else "✗")
        else:
            table.add_row(what, key, "–", bar, f"too few seeds ({n_seeds})")
    for what, key in _SHOWN:
        table.add_row(what, key, text(figures[key]) if key in figures else "–", "", "")
    return table


def _of(by_seed: dict[int, float]) -> str:
    return _text(estimate(list(by_seed.values())) if by_seed else None)


def _mean(by_seed: dict[int, float]) -> str:
    return text(sum(by_seed.values()) / len(by_seed)) if by_seed else "–"


def _text(estimated: Estimate | None) -> str:
    return "–" if estimated is None else f"{estimated.mean:.2f} \\[{estimated.low:.2f}, {estimated.high:.2f}]"
