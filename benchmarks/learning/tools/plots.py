"""The arms' curves with their bands."""

from pathlib import Path

from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, scores
from benchmarks.learning.tools import world
from benchmarks.learning.tools.arms import ARMS

CAPTION = "Burnish, sandbox model, SIMULATED users; means and 95 % bootstrap bounds over seeds (n beside each arm)"


def draw(folder: Path, results: ByArm) -> list[Path]:
    """Write `tools.png` and `tools.svg`; returns their paths, none where there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not any(results.get(arm) for arm in ARMS):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(9.5, 5), dpi=120)
    for arm in ARMS:
        told = {n: estimate(list(found.values())) for n in world.MILESTONES if (found := scores(results, arm, n))}
        if told:
            (line,) = axes.plot(
                list(told), [at.mean for at in told.values()], "o-", ms=3, label=f"{arm} (n={len(results[arm])})"
            )
            lows, highs = [at.low for at in told.values()], [at.high for at in told.values()]
            axes.fill_between(list(told), lows, highs, color=line.get_color(), alpha=0.15)
    axes.set(xlabel="sessions with simulated users", ylabel="held-out sessions whose calls all worked", ylim=(-0.02, 1.02))
    axes.set_title(CAPTION, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.tight_layout()
    paths = [folder / f"tools.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    pyplot.close(figure)
    return paths
