"""The tables of style personalisation, from all available results."""

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar, text
from benchmarks.learning.bounds import Estimate, estimate, gain
from benchmarks.learning.columns import ByArm, Measured, bars_table, counted, scores, unmet_bars
from benchmarks.learning.style import world
from benchmarks.learning.style.arms import ARMS, BASELINE, PRODUCT, WITH_GROUPS
from benchmarks.learning.style.figures import barred, ends

BARS: tuple[Bar, ...] = (
    (
        f"score after 128 interactions, {PRODUCT} (aim)",
        "style_score_128",
        "≥ 0.76",
        lambda f: f["style_score_128"] >= 0.76,
    ),
    (f"score after 256, {PRODUCT}", "style_score_256", "≥ 0.60", lambda f: f["style_score_256"] >= 0.60),
    (f"score after 512, {PRODUCT}", "style_score_512", "≥ 0.90", lambda f: f["style_score_512"] >= 0.90),
    (f"{WITH_GROUPS} over {BASELINE} at 256, paired", "gain_256", "> 0", lambda f: f["gain_256"] > 0),
    ("first-turn satisfaction of unseen users, LoRA ÷ memory", "unseen_ratio", "≥ 3", lambda f: f["unseen_ratio"] >= 3),
    ("seen users, memory+lora − memory (mean)", "memory_lora_gain", "≥ 0", lambda f: f["memory_lora_gain"] >= 0),
    ("correct on other instructions, share of the base's", "retention", "≥ 0.92", lambda f: f["retention"] >= 0.92),
    ("control, learner off: change", "control_off_change", "± 0.05", lambda f: abs(f["control_off_change"]) <= 0.05),
    (
        "control, rewards shuffled: score",
        "control_shuffled_score",
        "≤ 0.25",
        lambda f: f["control_shuffled_score"] <= 0.25,
    ),
    ("control, hints shuffled: gain", "control_hints_gain", "≤ 0.05", lambda f: f["control_hints_gain"] <= 0.05),
)
"""Figures are the less favourable bound. The aim is not a bar."""
AIM = "style_score_128"
_GAINS_AT = (128, 256, 512)


def show(console: Console, results: ByArm, world_hash: str) -> None:
    """Print all tables and the names of arms without results."""
    console.print(f"Style personalisation: SIMULATED users, sandbox model; world {world_hash}", highlight=False)
    console.print(
        "mean \\[lower, upper 95 % bootstrap bound] over seeds; scores are shares of held-out first replies\n"
    )
    available = [arm for arm in ARMS if results.get(arm)]
    curves = Table("arm", "n", *(f"score {n}" for n in world.MILESTONES), title="learning")
    gains = Table(
        "arm",
        "n",
        *(f"over {BASELINE}, {at}" for at in _GAINS_AT),
        "judge calls",
        "shadow tokens",
        title="gains, paired by seed",
    )
    people = Table(
        "arm",
        "unseen users",
        "seen users",
        "retention",
        "sessions until 3 satisfied",
        "users of 8",
        title="users and other instructions",
    )
    works = Table(
        "arm",
        "versions",
        "refused",
        "rolled back",
        "trained turns",
        "failed",
        "late",
        "seconds",
        title="steps and costs",
    )
    for arm in available:
        curves.add_row(arm, ends(results, arm), *(_of(scores(results, arm, at)) for at in world.MILESTONES))
        over = [gain(scores(results, arm, at), scores(results, BASELINE, at)) for at in _GAINS_AT]
        gains.add_row(
            arm, str(min((each.n for each in over if each), default=0)), *map(_text, over), *_cells(results, arm, _COST)
        )
        people.add_row(arm, *_cells(results, arm, _PEOPLE))
        works.add_row(arm, *_cells(results, arm, _WORK))
    for table in (curves, gains, people, works):
        console.print(table)
    missing = [name for name in ARMS if name not in available]
    if missing:
        console.print(f"no results: {', '.join(missing)}\n", highlight=False)
    console.print(bars_table(BARS, barred(results)))


def unmet(measured: dict[str, Measured]) -> list[str]:
    """The keys of bars that are missed or that have too few seeds."""
    return [key for key in unmet_bars(BARS, measured) if key != AIM]


_COST = ("judge_calls", "shadow_tokens")
_PEOPLE = ("unseen", "seen", "retention", "sessions_until_three", "users_satisfied")
_WORK = ("n_versions", "n_refused", "n_rolled_back", "n_trained", "n_failed", "n_late", "seconds")
_PLAIN = {*_COST, *_WORK, "users_satisfied"}


def _cells(results: ByArm, arm: str, keys: tuple[str, ...]) -> list[str]:
    columns = [counted(results, arm, key) for key in keys]
    return [_mean(column) if key in _PLAIN else _of(column) for key, column in zip(keys, columns, strict=True)]


def _of(by_seed: dict[int, float]) -> str:
    return _text(estimate(list(by_seed.values())) if by_seed else None)


def _mean(by_seed: dict[int, float]) -> str:
    return text(sum(by_seed.values()) / len(by_seed)) if by_seed else "–"


def _text(estimated: Estimate | None) -> str:
    return "–" if estimated is None else f"{estimated.mean:.2f} \\[{estimated.low:.2f}, {estimated.high:.2f}]"
