"""Continual use as a part of the benchmark: arms, figures, bars and the picture."""

from functools import partial
from pathlib import Path

from benchmarks.learning import picture
from benchmarks.learning.bounds import Estimate, estimate, paired, ratio
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, curved, scores
from benchmarks.learning.part import Part, curve
from benchmarks.real_model import model
from benchmarks.real_model.continual import run, wishes
from benchmarks.real_model.continual.wishes import ENDS, N_EACH, POPULATIONS
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import Arm
from benchmarks.real_model.english.figures import ABILITIES, CAPTION
from benchmarks.real_model.tables import Report, at_least, beside

GATED, UNGATED = "gated", "ungated"
NO_GATE = {
    # the bound on a loss never exceeds 1, so no loss is too large
    "gate.forgetting_margin": 1.0,
    "learner.monitors": "watch",
    "learner.recipe.outlier_z": 0.0,
    "canary.watch": False,
}
"""What a gate is, switched off: nothing is refused, skipped or taken back. The checks of a version's files and the
probe cannot be switched off.
"""
ARMS = {
    arm.name: arm
    for arm in (Arm(GATED, "the product's defaults"), Arm(UNGATED, "the defaults without the gate", NO_GATE))
}
AT = (0, *ENDS)
SCORES = tuple(f"score_{n}" for n in range(1, len(POPULATIONS) + 1))
WISHES = tuple(dict.fromkeys(wish.name for each in POPULATIONS for wish in each))
COUNTED = ("n_trained", "n_versions", "n_refused", "n_rolled_back", "n_failed", "n_late", "seconds")
N_MIN = 2


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """All figures of an arm by seed."""
    names = (*SCORES, "content", *WISHES, *ABILITIES)
    found = {f"{name}_{n}": curved(results, arm, name, n) for name in names for n in AT}
    return found | {key: counted(results, arm, key) for key in COUNTED}


def barred(results: ByArm) -> dict[str, Measured]:
    """Lower bounds: the first score at the end ÷ after the first population, and the prompts passed ÷ the base's."""
    found: dict[str, Estimate] = {}
    for arm, suffix in ((GATED, ""), (UNGATED, "_ungated")):
        first = paired(scores(results, arm, ENDS[-1]), scores(results, arm, ENDS[0]))
        general = list(curved(results, arm, "general", ENDS[-1]).values())
        found |= {f"continual_kept{suffix}": ratio(*first)} if first[0] else {}
        found |= {f"continual_general{suffix}": estimate(general)} if general else {}
    return {key: Measured(each.low, each.n) for key, each in found.items()}


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `continual.png` and `continual.svg`: a panel an arm. Returns their paths, or none if there is nothing."""
    shown = [arm for arm in ARMS if results.get(arm)]
    if not shown:
        return []
    size = (max(9.0, 5.0 * len(shown)), 4.5)  # the caption needs the width
    figure, panels = picture.pyplot().subplots(1, len(shown), figsize=size, dpi=120, sharey=True, squeeze=False)
    for arm, axes in zip(shown, panels.flat, strict=True):
        for place, name in enumerate(SCORES, 1):
            band = picture.estimates(AT, partial(curved, results, arm, name))
            picture.draw_band(axes, band, f"score by the wishes of population {place}", marker="o", ms=3)
        general = picture.estimates(ENDS, partial(curved, results, arm, "general"))
        picture.draw_band(axes, general, "general abilities ÷ base's", color="black", linestyle=":")
        for end in ENDS[:-1]:
            axes.axvline(end, color="grey", linewidth=0.8)
        axes.set(title=f"{arm} (n={len(results[arm])})", xlabel="rated replies", ylim=(-0.02, 1.1))
        axes.grid(alpha=0.25)
    panels.flat[0].legend(fontsize=7, loc="upper left")
    figure.suptitle(CAPTION, fontsize=8)
    return picture.save(figure, folder, "continual")


BARS = (
    at_least("first population's score at the end ÷ after it", "continual_kept", 0.85),
    at_least("general abilities at the end ÷ the base's", "continual_general", 0.95),
    beside("the first with the gate off", "continual_kept_ungated"),
    beside("the second with the gate off", "continual_general_ungated"),
)
"""Figures are lower bounds."""
REPORT = Report(
    f"Continual use, SmolLM2-135M-Instruct, three populations of {N_EACH} rated replies",
    ARMS,
    columns,
    {
        **{f"share of replies that please population {name[-1]}": [f"{name}_{n}" for n in AT] for name in SCORES},
        "shares of replies at the end": [f"{name}_{ENDS[-1]}" for name in ("content", *WISHES)],
        "other abilities": [f"{name}_{n}" for name in ABILITIES for n in ENDS],
        "steps and costs": COUNTED,
    },
    barred,
    BARS,
    N_MIN,
    draw,
)
FILES = (Path(wishes.__file__), *world.FILES)
PART = Part("continual", FILES, ARMS, tuple(ARMS), ENDS[-1], run.play, curve, REPORT.tables(), under=model.UNDER)
