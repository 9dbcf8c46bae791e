"""Shared parts of the pictures: curves with their bands, and files that need no screen."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.bounds import Estimate, estimate
from benchmarks.learning.columns import BySeed


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing into files. It is imported on demand, because most commands draw nothing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def estimates(places: Iterable[int], found: Callable[[int], BySeed]) -> dict[int, Estimate]:
    """Means with bounds by interactions, for the places that have a seed."""
    return {n: estimate(list(by_seed.values())) for n in places if (by_seed := found(n))}


def draw_band(axes: Any, curve: Mapping[int, Estimate], label: str, alpha: float = 0.15, **style: Any) -> None:
    """A line through the means and a band from the lower to the upper bounds."""
    at = list(curve)
    (line,) = axes.plot(at, [each.mean for each in curve.values()], label=label, **style)
    lows, highs = [each.low for each in curve.values()], [each.high for each in curve.values()]
    axes.fill_between(at, lows, highs, color=line.get_color(), alpha=alpha)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write the figure as `name`.png and `name`.svg and close it. Returns their paths."""
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    pyplot().close(figure)
    return paths
