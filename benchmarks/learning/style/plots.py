"""The picture of style personalisation: learning curves with their bands."""

from functools import partial
from pathlib import Path

from benchmarks.learning import picture
from benchmarks.learning.columns import ByArm, scores
from benchmarks.learning.style import world
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.figures import ends

CAPTION = "Burnish, sandbox model, SIMULATED users; means and 95 % bootstrap bounds over seeds (n beside each arm)"


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `style.png` and `style.svg`. Returns their paths, or none if there is nothing to draw."""
    if not any(results.get(arm) for arm in ARMS):
        return []
    pyplot = picture.pyplot()
    figure, axes = pyplot.subplots(figsize=(9.5, 5), dpi=120)
    colours = pyplot.get_cmap("tab20")
    for i, arm in enumerate(ARMS):
        if curve := picture.estimates(world.MILESTONES, partial(scores, results, arm)):
            picture.draw_band(axes, curve, f"{arm} (n={ends(results, arm)})", marker="o", ms=3, color=colours(i))
    axes.set(xlabel="interactions with simulated users", ylabel="held-out score, first reply", ylim=(-0.02, 1.02))
    axes.set_title(CAPTION, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture.save(figure, folder, "style")
