"""The drill's picture: served and newest version, one panel for each share of liars, with and without defences."""

from functools import partial
from pathlib import Path

from benchmarks.learning import picture
from benchmarks.learning.columns import ByArm
from benchmarks.learning.drill import world
from benchmarks.learning.drill.arms import ARMS, SHARES, Defence
from benchmarks.learning.drill.attackers import Attack
from benchmarks.learning.drill.figures import at

CAPTION = (
    f"Burnish, sandbox model, SIMULATED users, {world.RATE_FACTOR:g}× learning rate; "
    "means and 95 % bootstrap bounds over seeds (n beside each)"
)
_COLOURS = {Defence.NONE: "tab:red", Defence.OWN: "tab:orange", Defence.ALL: "tab:blue"}
_LINES = {"served": "-", "learner": ":"}


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `drill.png` and `drill.svg`. Returns their paths, or none if there is nothing to draw."""
    with_liars = [arm for arm in ARMS.values() if arm.attack is Attack.LIES and results.get(arm.name)]
    shares = [share for share in SHARES if any(arm.share == share for arm in with_liars)]
    if not shares:
        return []
    n_rows, n_columns = (len(shares) + 1) // 2, min(2, len(shares))
    size = (max(8.5, 2 + 4.5 * n_columns), 1 + 4 * n_rows)  # the caption needs the width
    figure, grid = picture.pyplot().subplots(
        n_rows, n_columns, figsize=size, dpi=120, sharex=True, sharey=True, squeeze=False
    )
    for axes in grid.flat[len(shares) :]:
        axes.set_visible(False)
    looks = range(0, world.N_INTERACTIONS + 1, world.ROUND)
    for share, axes in zip(shares, grid.flat, strict=False):
        shown = [arm for arm in with_liars if arm.share == share]
        for arm in shown:
            for name in _LINES:
                curve = picture.estimates(looks, partial(at, results, arm.name, name))
                label = f"{arm.name}, {name} (n={len(results[arm.name])})"
                alpha = 0.12 if name == "served" else 0.05
                style = {"color": _COLOURS[arm.defence], "linestyle": _LINES[name], "linewidth": 1.4}
                picture.draw_band(axes, curve, label, alpha, **style)
        axes.set(title=f"{share:.0%} of the users lie", ylim=(-0.02, 1.02))
        axes.grid(alpha=0.25)
        # under the panel, because curves go everywhere; one column an arm
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(shown), frameon=False)
    figure.supxlabel("interactions with simulated users", fontsize=9)
    figure.supylabel("held-out score", fontsize=9)
    figure.suptitle(CAPTION, fontsize=8)
    return picture.save(figure, folder, "drill")
