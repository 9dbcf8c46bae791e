"""The tables of every part of this benchmark: an arm a row, a figure a column, and the bars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar, text
from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, BySeed, Measured, bars_table, flat, shown, unmet_bars
from benchmarks.learning.part import AnyArm, Tables

COUNTS = ("n_", "seconds", "judge_calls", "shadow_tokens", "tokens_")
"""How the names of figures begin that are printed without bounds."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a part reports. `columns` are all figures of an arm by seed, `shows` the keys of each table by its title.

    A bar needs `n_min` seeds.
    """

    title: str
    arms: Mapping[str, AnyArm]
    columns: Callable[[ByArm, str], dict[str, BySeed]]
    shows: Mapping[str, Sequence[str]]
    barred: Callable[[ByArm], dict[str, Measured]]
    bars: Sequence[Bar]
    n_min: int
    draw: Callable[[Path, ByArm], list[Path]] = lambda folder, results: []

    def tables(self) -> Tables:
        return Tables(self._show, self.draw, self._figures, lambda results: self._unmet(results))

    def _show(self, console: Console, results: ByArm, world_hash: str) -> None:
        console.print(f"{self.title}: SIMULATED users; world {world_hash}", highlight=False)
        console.print("mean \\[lower, upper 95 % bootstrap bound] over seeds\n")
        available = [arm for arm in self.arms if results.get(arm)]
        for title, keys in self.shows.items():
            table = Table("arm", "n", *keys, title=title)
            for arm in available:
                found = self.columns(results, arm)
                table.add_row(arm, str(len(results[arm])), *(_cell(key, found.get(key, {})) for key in keys))
            console.print(table)
        if missing := [name for name in self.arms if name not in available]:
            console.print(f"no results: {', '.join(missing)}\n", highlight=False)
        console.print(bars_table(self.bars, self.barred(results), self.n_min))

    def _figures(self, results: ByArm) -> dict[str, float]:
        """Flat: the bars' figures, `arm_key` with `_low` and `_high` for its bounds, `arm_n_seeds`."""
        found = shown(self.barred(results), self.n_min)
        for arm in results:
            name = arm.replace("+", "_").replace("-", "_")
            found |= flat(name, self.columns(results, arm)) | {f"{name}_n_seeds": float(len(results[arm]))}
        return found

    def _unmet(self, results: ByArm) -> list[str]:
        return unmet_bars(self.bars, self.barred(results), self.n_min)


def at_least(what: str, key: str, limit: float) -> Bar:
    return what, key, f"≥ {limit:g}", lambda figures: figures[key] >= limit


def at_most(what: str, key: str, limit: float) -> Bar:
    return what, key, f"≤ {limit:g}", lambda figures: figures[key] <= limit


def beside(what: str, key: str) -> Bar:
    """A figure for comparison, without a bar."""
    return what, key, "", lambda figures: True


def _cell(key: str, by_seed: BySeed) -> str:
    if not by_seed:
        return "–"
    found = estimate(list(by_seed.values()))
    if key.startswith(COUNTS):
        return text(found.mean)
    return f"{found.mean:.2f} \\[{found.low:.2f}, {found.high:.2f}]"
