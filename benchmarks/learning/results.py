"""Finished runs as files: one JSON per (arm, seed) under the world's hash, written by one rename after the run.

A run that dies leaves no result. A result with settings other than the arm's present ones is ignored, because it
belongs to another arm. The same holds for other settings of the sandbox, which every arm builds on. These files stay on
the machine that made them. What is published is a summary of them (`summaries.py`).
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burnish.config import PRESETS
from burnish.files import read_json, replace_text
from burnish.sandbox import MODEL

UNDER: Mapping[str, Any] = {
    **tomllib.loads((MODEL.parent / "burnish.toml").read_text(encoding="utf-8")),
    "learner": json.loads(json.dumps(PRESETS["sandbox"])),
}
"""The sandbox's settings and its preset for the learner. Parts with another model have others."""


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run. `scores` by interactions; `figures` are flat numbers; `settings` of the run.

    `curves` are further columns by interactions, of parts that have some. `date` is the day on which the run ended
    (UTC, ISO 8601).
    """

    arm: str
    seed: int
    settings: Mapping[str, Any]
    scores: Mapping[int, float]
    figures: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    date: str = field(default_factory=_today)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Result":
        """The result in a file's JSON. Raises KeyError if a field is missing."""
        curves = {name: curve_of(curve) for name, curve in kept["curves"].items()}
        scores = curve_of(kept["scores"])
        return cls(kept["arm"], int(kept["seed"]), kept["settings"], scores, kept["figures"], curves, kept["date"])


class Results:
    """The results of one world in `folder`/`world`. `under` are the settings below those of the arms."""

    def __init__(self, folder: Path, world: str, under: Mapping[str, Any] = UNDER) -> None:
        self.folder = folder / world[:16]
        self.world = world
        self.under = under

    def write(self, result: Result) -> None:
        body = json.dumps({"world": self.world, "under": self.under, **asdict(result)}, indent=1)
        replace_text(self._path(result.arm, result.seed), body + "\n")

    def find(self, arm: str, seed: int, settings: Mapping[str, Any]) -> Result | None:
        """The result of this run with these settings. None if there is none yet."""
        kept = read_json(self._path(arm, seed))
        if kept is None or (kept["world"], kept["under"], kept["settings"]) != (
            self.world,
            self.under,
            dict(settings),
        ):
            return None
        return Result.of(kept)

    def all(self, arm: str, settings_of: Callable[[int], Mapping[str, Any]]) -> dict[int, Result]:
        """Every result of the arm with its present settings, by seed."""
        seeds = sorted(int(path.stem) for path in (self.folder / arm).glob("*.json"))
        found = {seed: self.find(arm, seed, settings_of(seed)) for seed in seeds}
        return {seed: result for seed, result in found.items() if result is not None}

    def _path(self, arm: str, seed: int) -> Path:
        return self.folder / arm / f"{seed}.json"


def curve_of(kept: Mapping[str, Any]) -> dict[int, float]:
    """Values by interactions, from JSON with its text keys."""
    return {int(n): float(value) for n, value in kept.items()}
