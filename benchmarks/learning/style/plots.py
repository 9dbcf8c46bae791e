"""Learning curves with their bands, for people who would rather look than read."""

from pathlib import Path

from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, scores
from benchmarks.learning.style import world
from benchmarks.learning.style.arms import ARMS
from benchmarks.learning.style.figures import ends

CAPTION = "Burnish, sandbox model, SIMULATED users; means and 95 % bootstrap bounds over seeds (n beside each arm)"


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `style.png` and `style.svg`; returns their paths, none where there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    there = [arm for arm in ARMS if results.get(arm)]
    if not there:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(9.5, 5), dpi=120)
    colours = pyplot.get_cmap("tab20")
    for i, arm in enumerate(ARMS):
        told = {n: estimate(list(found.values())) for n in world.MILESTONES if (found := scores(results, arm, n))}
        if not told:
            continue
        at = list(told)
        axes.plot(
            at, [each.mean for each in told.values()], "o-", color=colours(i), ms=3, label=f"{arm} (n={ends(results, arm)})"
        )
        axes.fill_between(
            at, [each.low for each in told.values()], [each.high for each in told.values()], color=colours(i), alpha=0.15
        )
    axes.set(xlabel="interactions with simulated users", ylabel="held-out score, first reply", ylim=(-0.02, 1.02))
    axes.set_title(CAPTION, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.tight_layout()
    paths = [folder / "style.png", folder / "style.svg"]
    for path in paths:
        figure.savefig(path)
    pyplot.close(figure)
    return paths
