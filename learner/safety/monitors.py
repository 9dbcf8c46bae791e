"""Monitors: the health of learning, step by step: green, yellow (slow down) or red (publish nothing).

Each is a pure function of the last steps' metrics and of the first ones'. The limits are in the recipe. A metric that a
step did not measure has no reading: absent is not green. Serving does not depend on any of this.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from burnish.config import Recipe

WINDOW, RECENT, FIRST = 20, 5, 5
"""Numbers of steps: for a peak, for the mean of a present value, and for the mean of a start."""
N_EQUAL_STEPS = 3
"""Steps in a row with equal rewards that make their spread red, if they are not all bad."""
FEW_PRAISED, MOST_PRAISED = -0.8, 0.8
"""Mean rewards at which one of ten replies is praised, and nine of ten. Beyond them rewards vary little in any case."""
NORMS, MIN_NORMS = 64, 16
"""Gradient norms that a norm is compared with, and the least number needed."""
MIN_CALLS = 50
"""Tool calls for the start's share and for the present share."""

Metrics = Mapping[str, float]


class Level(IntEnum):
    """The severity. Levels are comparable."""

    GREEN = 0
    YELLOW = 1
    RED = 2


class Reading(NamedTuple):
    """A monitor's reading: its level, its value, and a sentence for both."""

    level: Level
    value: float
    why: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"level": self.level.name.lower(), "value": self.value, "why": self.why}


@dataclass(frozen=True, slots=True)
class History:
    """The first steps and the latest ones, oldest first. The newest of `recent` is the step that is judged."""

    first: Sequence[Metrics]
    recent: Sequence[Metrics]

    def values(self, name: str, n: int = WINDOW) -> list[float]:
        """The metric in the last `n` steps that measured it."""
        return [metrics[name] for metrics in self.recent if name in metrics][-n:]

    def start(self, name: str) -> float | None:
        """Its mean over the first steps that measured it. None while there are too few."""
        found = [metrics[name] for metrics in self.first if name in metrics][:FIRST]
        return sum(found) / FIRST if len(found) == FIRST else None

    def present(self, name: str) -> float | None:
        """Its mean over the last steps that measured it. None if the step that is judged did not."""
        found = self.values(name, RECENT)
        return sum(found) / len(found) if found and self.recent and name in self.recent[-1] else None


def _level(value: float, limits: tuple[float, float]) -> Level:
    return Level((value >= limits[0]) + (value >= limits[1]))


def spread(history: History, limits: tuple[float, float]) -> Reading | None:
    """Fall of the rewards' standard deviation from its peak. It falls first when a policy collapses.

    It also falls when all goes well: if the mean reward is above its value at the peak, that is success and green.
    While hardly any reply of one of the last steps was praised, it is green too. Either nothing has been learned yet,
    or users have changed their mind: both times only learning helps. If a version is the cause, the watch takes it
    back.
    """
    stds, means = history.values("reward_std"), history.values("reward_mean")
    if history.present("reward_std") is None or len(stds) < FIRST or len(means) != len(stds):
        return None
    smooth, mean = (
        [sum(values[i - RECENT : i]) / RECENT for i in range(RECENT, len(values) + 1)] for values in (stds, means)
    )
    if min(means[-RECENT:]) < FEW_PRAISED:
        return Reading(Level.GREEN, 0.0, "hardly any reply was praised in one of the last steps")
    if mean[-1] > MOST_PRAISED:
        return Reading(Level.GREEN, 0.0, "nearly every reply is praised")
    peak = max(range(len(smooth)), key=lambda i: smooth[i])
    if smooth[peak] == 0.0:
        return Reading(Level.YELLOW, 0.0, f"the rewards were equal in each of the last {len(stds)} steps")
    fall = 1.0 - smooth[-1] / smooth[peak]
    level = Level.RED if not any(stds[-N_EQUAL_STEPS:]) else _level(fall, limits)
    if level and mean[-1] > mean[peak]:
        return Reading(Level.GREEN, fall, f"rewards vary {fall:.0%} less than at their peak, and are better")
    return Reading(level, fall, f"rewards vary {fall:.0%} less than at their peak, and are not better")


def entropy(history: History, limits: tuple[float, float], least: float) -> Reading | None:
    """The policy's entropy against its start. Both a collapse and a blow-up are bad."""
    start, present = history.start("entropy"), history.present("entropy")
    if present is None:
        return None
    if present < least:
        return Reading(Level.RED, present, f"entropy {present:.3f} nats a token, below {least:g}")
    if start is None:
        return None
    change = present / start - 1.0 if start > 0.0 else 0.0
    level = Level.RED if change >= limits[1] else Level(abs(change) >= limits[0])
    return Reading(level, present, f"entropy {present:.3f} nats a token, {change:+.0%} from the start")


def z_score(norms: Sequence[float], norm: float) -> float | None:
    """Standard deviations by which `norm` exceeds the last 64 `norms`. None with fewer than 16. Infinite if it is not
    finite.

    The deviation counts as at least half the mean. So if the norms hardly varied, a slightly larger one is no outlier.
    """
    if not math.isfinite(norm):
        return math.inf
    known = list(norms)[-NORMS:]
    if len(known) < MIN_NORMS:
        return None
    mean = sum(known) / len(known)
    std = math.sqrt(sum((value - mean) ** 2 for value in known) / (len(known) - 1))
    floor = max(std, mean / 2.0)
    return (norm - mean) / floor if floor > 0.0 else 0.0


def grad_norm(history: History, limits: tuple[float, float]) -> Reading | None:
    """The gradient's z-score. One high value is an outlier, two in a row mean that the policy diverges."""
    values = history.values("grad_z", NORMS)
    if history.present("grad_z") is None:
        return None
    n_wild = sum(value >= limits[1] for value in values)
    level = Level.RED if values[-1] >= limits[1] and n_wild > 1 else Level(values[-1] >= limits[0])
    return Reading(
        level,
        values[-1],
        f"gradient norm {values[-1]:.1f} deviations above the last ones; {n_wild} times above {limits[1]:g}",
    )


def change(history: History, limits: tuple[float, float], name: str, what: str) -> Reading | None:
    """A metric's change from its start in either direction, as a share of the start."""
    start, present = history.start(name), history.present(name)
    if start is None or present is None or start == 0.0:
        return None
    share = present / start - 1.0
    return Reading(_level(abs(share), limits), present, f"{what} {present:.1f}, {share:+.0%} from the start")


def rise(history: History, limits: tuple[float, float], name: str, what: str) -> Reading | None:
    """Rise of a share since its start. Some uses have a high share from the first step on."""
    start, present = history.start(name), history.present(name)
    if start is None or present is None:
        return None
    return Reading(
        _level(present - start, limits), present, f"{what} {present:.3g}, {present - start:+.3g} from the start"
    )


def height(history: History, limits: tuple[float, float], name: str, what: str) -> Reading | None:
    """A metric that should be small."""
    present = history.present(name)
    return None if present is None else Reading(_level(present, limits), present, f"{what} {present:.3g}")


def tool_json(history: History, limits: tuple[float, float]) -> Reading | None:
    """Fall of the share of tool calls that parse, from the first 50 or more to the last 50 or more."""
    start, present = _share(history.first), _share(history.recent[::-1])
    if start is None or present is None:
        return None
    fall = start - present
    return Reading(_level(fall, limits), present, f"{present:.1%} of tool calls parse, {start:.1%} at the start")


def _share(steps: Sequence[Metrics]) -> float | None:
    """The share of calls that parse, over as many of `steps` as are needed to have enough calls."""
    calls = broken = 0.0
    for metrics in steps:
        calls, broken = calls + metrics.get("n_calls", 0.0), broken + metrics.get("n_broken_calls", 0.0)
        if calls >= MIN_CALLS:
            return 1.0 - broken / calls
    return None


REGISTRY: dict[str, Callable[[History, Recipe], Reading | None]] = {
    "spread": lambda h, s: spread(h, s.monitor_spread),
    "entropy": lambda h, s: entropy(h, s.monitor_entropy, s.min_entropy),
    "grad_norm": lambda h, s: grad_norm(h, s.monitor_grad_norm),
    "kl": lambda h, s: height(h, s.monitor_kl, "kl_to_base/k3", "nats a token from the base:"),
    "length": lambda h, s: change(h, s.monitor_length, "length", "tokens a reply:"),
    "repetition": lambda h, s: rise(h, s.monitor_repetition, "repetition", "share of repeated 4-grams:"),
    "tool_json": lambda h, s: tool_json(h, s.monitor_tool_json),
    "mismatch": lambda h, s: height(h, s.monitor_mismatch, "offpolicy/mismatch_k3", "k3 of engine against learner:"),
}
"""The monitors by name."""


def read(history: History, recipe: Recipe) -> dict[str, Reading]:
    """All readings that the steps so far allow."""
    found = {name: monitor(history, recipe) for name, monitor in REGISTRY.items()}
    return {name: reading for name, reading in found.items() if reading is not None}


def worst(readings: Mapping[str, Reading]) -> Level:
    """The highest level. Green if there are no readings."""
    return max((reading.level for reading in readings.values()), default=Level.GREEN)
