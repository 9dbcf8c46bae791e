"""Finished runs as files: one JSON per (arm, seed) under the world's hash, written by one rename when the run has ended.

A run that dies leaves no result. A result of other settings than the arm's present ones is not used: it tells of another arm. Nor is
one over other settings of the sandbox, which stand under every arm's.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from burnish.files import read_json, replace_text
from burnish.sandbox import MODEL

UNDER: Mapping[str, Any] = tomllib.loads((MODEL.parent / "burnish.toml").read_text(encoding="utf-8"))
"""The sandbox's settings."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed. `scores` by interactions; `figures` are flat numbers; `settings` what the run was given.

    `curves` are further columns by interactions, of parts that have some.
    """

    arm: str
    seed: int
    settings: Mapping[str, Any]
    scores: Mapping[int, float]
    figures: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


class Results:
    """The results of one world in `folder`/`world`."""

    def __init__(self, folder: Path, world: str) -> None:
        self.folder = folder / world[:16]
        self.world = world

    def write(self, result: Result) -> None:
        body = json.dumps({"world": self.world, "under": UNDER, **asdict(result)}, indent=1)
        replace_text(self._path(result.arm, result.seed), body + "\n")

    def find(self, arm: str, seed: int, settings: Mapping[str, Any]) -> Result | None:
        """The result of this run with these settings; None where there is none (yet)."""
        kept = read_json(self._path(arm, seed))
        if kept is None or (kept["world"], kept["under"], kept["settings"]) != (self.world, UNDER, dict(settings)):
            return None
        curves = {name: _curve(curve) for name, curve in kept.get("curves", {}).items()}
        return Result(kept["arm"], int(kept["seed"]), kept["settings"], _curve(kept["scores"]), kept["figures"], curves)

    def all(self, arm: str, settings_of: Callable[[int], Mapping[str, Any]]) -> dict[int, Result]:
        """By seed, every result of the arm with its present settings."""
        seeds = sorted(int(path.stem) for path in (self.folder / arm).glob("*.json"))
        found = {seed: self.find(arm, seed, settings_of(seed)) for seed in seeds}
        return {seed: result for seed, result in found.items() if result is not None}

    def _path(self, arm: str, seed: int) -> Path:
        return self.folder / arm / f"{seed}.json"


def _curve(kept: Mapping[str, Any]) -> dict[int, float]:
    return {int(n): float(value) for n, value in kept.items()}
