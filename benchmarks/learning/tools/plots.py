"""The picture of the tool agent: the arms' curves with their bands."""

from functools import partial
from pathlib import Path

from benchmarks.learning import picture
from benchmarks.learning.columns import ByArm, scores
from benchmarks.learning.tools import world
from benchmarks.learning.tools.arms import ARMS

CAPTION = "Burnish, sandbox model, SIMULATED users; means and 95 % bootstrap bounds over seeds (n beside each arm)"


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `tools.png` and `tools.svg`. Returns their paths, or none if there is nothing to draw."""
    if not any(results.get(arm) for arm in ARMS):
        return []
    figure, axes = picture.pyplot().subplots(figsize=(9.5, 5), dpi=120)
    for arm in ARMS:
        if curve := picture.estimates(world.MILESTONES, partial(scores, results, arm)):
            picture.draw_band(axes, curve, f"{arm} (n={len(results[arm])})", marker="o", ms=3)
    axes.set(
        xlabel="sessions with simulated users", ylabel="held-out sessions whose calls all worked", ylim=(-0.02, 1.02)
    )
    axes.set_title(CAPTION, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture.save(figure, folder, "tools")
