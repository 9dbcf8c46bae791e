"""What every part of the proof offers: runs that are missing, tables, pictures, flat figures, and which bars are not met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from benchmarks.learning.queue import Job
from benchmarks.learning.results import Results


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for: which arms (None: all that can run), which seeds, and whether finished runs come again."""

    arms: Sequence[str] | None
    seeds: Sequence[int]
    is_again: bool


class Shown(Protocol):
    """What a part has to say of the results that are there."""

    def show(self, console: Console) -> None:
        """Print the tables."""

    def draw(self, folder: Path) -> list[Path]:
        """Write the pictures; their paths."""

    def figures(self) -> dict[str, float]:
        """Flat figures for `--json`; a bar's own key is there only where enough seeds stand behind it."""

    def unmet(self) -> list[str]:
        """Keys of bars that are missed or not shown yet."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part: the files that are its world, its arms, the runs it lacks, and what its results show."""

    name: str
    world: Sequence[Path]
    arms: Sequence[str]
    missing: Callable[[Results, Wish], Sequence[Job]]
    shown: Callable[[Results], Shown]
