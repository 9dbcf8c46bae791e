"""From results to figures: per arm and key over the seeds, and the bounds behind the bars."""

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.learning import picture
from benchmarks.learning.bounds import Estimate, estimate, gain, paired, ratio
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, curved, scores
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import ARMS, BASELINE, PRODUCT
from benchmarks.real_model.english.run import LENGTHS
from benchmarks.real_model.tables import Report, at_least, at_most
from burnish.sandbox.english.style import HOUSE_STYLE

LAST = world.MILESTONES[-1]
SHARES = ("content", *(wish.name for wish in HOUSE_STYLE))
ABILITIES = ("kept", "kept_sure", "general")
COUNTED = (
    "score_prompted", "judge_calls", "shadow_tokens", "n_trained", "n_versions", "n_refused", "n_rolled_back",
    "n_requests", "n_failed", "n_late", "seconds", "seconds_waited",
)  # fmt: skip
N_MIN = 4
CAPTION = "Burnish, SmolLM2-135M-Instruct, SIMULATED users; means and 95 % bootstrap bounds over seeds (n beside each)"


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """All figures of an arm by seed."""
    found = {f"score_{n}": scores(results, arm, n) for n in world.MILESTONES}
    for name in (*SHARES, *ABILITIES):
        found |= {f"{name}_{n}": curved(results, arm, name, n) for n in world.MILESTONES}
    return found | {key: counted(results, arm, key) for key in COUNTED}


def barred(results: ByArm) -> dict[str, Measured]:
    """The figures with bars: the less favourable bound of each. Figures without seeds are left out."""
    of_product = {n: scores(results, PRODUCT, n) for n in world.MILESTONES}
    found = {f"real_score_{n}": _measured(_of(of_product[n]), "low") for n in (128, 256, 512)}
    over, under = paired(of_product[LAST], prompted(results))
    change = gain(scores(results, "off", LAST), scores(results, "off", 0))
    found |= {
        "real_of_prompted": _measured(ratio(over, under) if over else None, "low"),
        "real_gain_128": _measured(gain(of_product[128], scores(results, BASELINE, 128)), "low"),
        "kept": _measured(_of(curved(results, PRODUCT, "kept", LAST)), "low"),
        "control_off_change": _measured(change, "farthest"),
        "control_shuffled_score": _measured(_of(scores(results, "shuffled", LAST)), "high"),
    }
    shares, n_seeds = step_lengths(results)
    if shares:
        low, high = np.percentile(shares, (10, 90))
        found |= {"step_kl_low": Measured(float(low), n_seeds), "step_kl_high": Measured(float(high), n_seeds)}
    return {key: each for key, each in found.items() if each is not None}


def prompted(results: ByArm) -> BySeed:
    """The base's score with the wishes in its prompt by seed, of every arm whose runs asked for it."""
    return {seed: value for arm in results for seed, value in counted(results, arm, "score_prompted").items()}


def step_lengths(results: ByArm) -> tuple[list[float], int]:
    """KL ÷ target of every step of every arm, and the number of seeds that they come from."""
    found: list[float] = []
    seeds: set[int] = set()
    for by_seed in results.values():
        for seed, result in by_seed.items():
            kl, target = (result.curves.get(name, {}) for name in LENGTHS)
            mine = [kl[version] / target[version] for version in kl if target.get(version)]
            found += mine
            seeds |= {seed} if mine else set()
    return found, len(seeds)


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `english.png` and `english.svg`. Returns their paths, or none if there is nothing to draw."""
    shown = [arm for arm in ARMS if results.get(arm)]
    if not shown:
        return []
    figure, axes = picture.pyplot().subplots(figsize=(9.5, 5), dpi=120)
    for arm in shown:
        curve = picture.estimates(world.MILESTONES, partial(scores, results, arm))
        picture.draw_band(axes, curve, f"{arm} (n={len(results[arm])})", marker="o", ms=3)
    if by_seed := prompted(results):
        label = f"base, wishes in its prompt (n={len(by_seed)})"
        axes.axhline(estimate(list(by_seed.values())).mean, color="black", linestyle=":", label=label)
    axes.set(xlabel="rated replies to simulated users", ylabel="held-out score", ylim=(-0.02, 1.02))
    axes.set_title(CAPTION, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture.save(figure, folder, "english")


def _of(by_seed: BySeed) -> Estimate | None:
    return estimate(list(by_seed.values())) if by_seed else None


def _measured(found: Estimate | None, end: str) -> Measured | None:
    return None if found is None else Measured(getattr(found, end), found.n)


BARS = (
    at_least(f"score after 128 rated replies, {PRODUCT}", "real_score_128", 0.40),
    at_least("score after 256", "real_score_256", 0.60),
    at_least("score after 512", "real_score_512", 0.75),
    at_least("score after 512 ÷ the base's with the wishes in its prompt", "real_of_prompted", 1.2),
    (f"{PRODUCT} over {BASELINE} after 128, paired", "real_gain_128", "> 0", lambda f: f["real_gain_128"] > 0),
    at_least("general abilities kept, share of the base's passes", "kept", 0.95),
    (
        "control, learner off: change",
        "control_off_change",
        "± 0.05",
        lambda f: abs(f["control_off_change"]) <= 0.05,
    ),
    at_most("control, rewards shuffled: score", "control_shuffled_score", 0.20),
    at_least("KL of a step ÷ its target, 10th percentile over all steps", "step_kl_low", 0.3),
    at_most("KL of a step ÷ its target, 90th percentile over all steps", "step_kl_high", 1.5),
)
"""Figures are the less favourable bound, except the percentiles."""
REPORT = Report(
    "Plain English, SmolLM2-135M-Instruct",
    ARMS,
    columns,
    {
        "score": [f"score_{n}" for n in world.MILESTONES],
        f"shares of replies after {LAST}, the base with the wishes in its prompt, other abilities": [
            *(f"{name}_{LAST}" for name in SHARES), "score_prompted", *(f"{name}_{LAST}" for name in ABILITIES),
        ],
        "steps and costs": [key for key in COUNTED if key != "score_prompted"],
    },
    barred,
    BARS,
    N_MIN,
    draw,
)  # fmt: skip
