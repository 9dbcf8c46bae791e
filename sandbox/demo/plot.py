"""The learning curve as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

Curve = Sequence[tuple[int, float]]


def draw(folder: Path, curves: Mapping[str, Curve], trail: Curve, title: str) -> list[Path]:
    """Write `curve.png` and `curve.svg`. Returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), dpi=120)
    styles = {"learning": ("#117733", "D-"), "learner off": ("#888888", "s--"), "rewards shuffled": ("#cc6677", "o--")}
    if trail:
        axes.plot(
            *zip(*trail, strict=True), color="#88ccee", linewidth=1, label="users pleased at the first turn (last 32)"
        )
    for name, curve in curves.items():
        colour, line = styles.get(name, ("#332288", "^-"))
        axes.plot(*zip(*curve, strict=True), line, color=colour, markersize=5, label=f"held-out score, {name}")
    axes.set(xlabel="interactions with simulated users", ylabel="score", ylim=(-0.02, 1.02), xlim=(0, None))
    axes.set_title(f"Burnish demo: {title}", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left")
    figure.tight_layout()
    paths = [folder / "curve.png", folder / "curve.svg"]
    for path in paths:
        figure.savefig(path)
    pyplot.close(figure)
    return paths
