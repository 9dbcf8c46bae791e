"""How a version compares with another on real turns, and what follows: a pure state machine that is stored as JSON.

A turn is added once, in the order in which turns were settled. Metrics that need the other version are compared in
pairs: a turn meets the newest turn of the other arm that has no partner yet. Each turn is used once, and its verdict
plays no part in the choice. So every test keeps its guarantee (adapters/evidence/sequential.py). Judged rewards act at
α. Feedback, tool errors, length and latency act at α/4 each. The judged rewards of all slices of the traffic
(adapters/evidence/sliced_rewards.py) act at α together. That makes 3α in all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

from burnish.adapters.evidence.sequential import BoundedMean, KnownBaseline, Paired, gain, larger, no_worse, odds, share
from burnish.adapters.evidence.sliced_rewards import SlicedRewards
from burnish.records import CanaryState

N_GUARDS = 4
FLOOR = 10
"""Turns that a user may always have in an arm, whatever the cap."""
MAX_WAITING = 500
MOST_POINTS = 48
"""Points of the course that are kept. Beyond it, every second one is dropped."""
PAIRED, AMOUNTS = ("reward", "feedback", "tools"), ("length", "latency")


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts as worse, and how certain the test must be. Operators set `margin` and `max_hours` (`[canary]`)."""

    alpha: float = 0.005
    """Probability that judged rewards stop a version that is no worse than the other."""
    beta: float = 0.05
    """Probability of passing a version that is worse by `margin`."""
    margin: float = 0.1
    """Loss of judged success that counts. 0.1 is ten points."""
    min_turns: int = 50
    """Judged turns of a canary that are needed. With fewer it cannot pass and is recorded as skipped."""
    max_hours: float = 24.0
    """Hours after which an undecided canary is skipped, and its version promoted."""
    watch_turns: int = 2000
    """Judged turns after which the watch over a version ends."""
    user_cap: float = 0.25
    """Largest share of a test's turns that one user may have, given enough users (4 at 0.25). 1: off."""
    length_ratio: float = 1.5
    """A version is stopped if its replies are longer by more than this factor."""
    latency_ratio: float = 2.0
    """A version is stopped if its replies take longer by more than this factor."""
    baseline_turns: int = 500
    """Latest judged turns of the other version. They give its rate, and a watch makes pairs with them."""
    patience: float = 900.0
    """Seconds after which a turn without a verdict counts as unjudged."""
    shadow_share: float = 0.25
    """Share of the live turns that a shadow canary answers too."""
    slice_margin: float = 0.1
    """Loss of judged success in a slice that counts. Operators set it (`gate.slice_margin`). 1: off."""
    max_rollbacks: int = 3
    """Automatic rollbacks within a day after which learning is paused."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one settled turn shows, None if it shows nothing: a reward above 0, an explicit rating, tools free of
    errors, the reply's length in tokens, and its time in seconds.

    `name` is the turn's id and `slices` are the slices of the traffic that it belongs to.
    """

    reward: bool | None
    feedback: bool | None
    tools: bool | None
    length: float | None
    latency: float | None
    name: str = ""
    slices: tuple[str, ...] = ()


@dataclass(slots=True)
class Arm:
    """Counts of one version's turns. `n_capped` are turns left out because their user had too many."""

    n: int = 0
    n_judged: int = 0
    n_good: int = 0
    n_capped: int = 0
    users: dict[str, int] = field(default_factory=dict)

    def admits(self, user: str, cap: float) -> bool:
        """False if the turn's user has more than the share `cap` and there are enough users for each to have less."""
        mine = self.users.get(user, 0)
        is_crowded = len(self.users) >= 1 / cap and mine >= FLOOR and mine + 1 > cap * (self.n + 1)
        self.n_capped += is_crowded
        return not is_crowded

    def count(self, user: str, turn: Turn) -> None:
        self.n += 1
        self.users[user] = self.users.get(user, 0) + 1
        if turn.reward is not None:
            self.n_judged += 1
            self.n_good += turn.reward


class Comparison:
    """A version beside its baseline. `rate` is the baseline's known share of good turns. None compares rewards in
    pairs.
    """

    def __init__(self, rules: Rules, rate: float | None = None) -> None:
        self.rules = rules
        self.known = None if rate is None else KnownBaseline(rate, rules.margin)
        self.pairs = {name: Paired() for name in PAIRED}
        self.no_worse = no_worse(rules.margin)
        self.amounts = {"length": larger(rules.length_ratio), "latency": larger(rules.latency_ratio)}
        self.baseline, self.version = Arm(), Arm()
        self.has_mirrored = False
        self.slices = SlicedRewards()
        self.course: list[list[float]] = []
        """The comparison over time: judged and good turns of the version, those of the baseline, log E of rewards."""
        self._stride = 1
        self._waiting: dict[str, list[list[float]]] = {name: [[], []] for name in (*PAIRED, *AMOUNTS)}

    def add(self, is_version: bool, user: str, turn: Turn) -> None:
        """One settled turn of the version, or of its baseline."""
        arm = self.version if is_version else self.baseline
        if not arm.admits(user, self.rules.user_cap):
            return
        arm.count(user, turn)
        if is_version and self.known is not None and turn.reward is not None:
            self.known.update(turn.reward)
        if turn.reward is not None:
            self.slices.add(is_version, turn.name, turn.slices, turn.reward)
        for name in (*PAIRED, *AMOUNTS):
            value = getattr(turn, name)
            if value is not None:
                self._pair(name, is_version, float(value))
        self._note()

    def add_mirrored(self, user: str, outcome: int | None, baseline: Turn, version: Turn) -> None:
        """Both versions' replies to one turn, with the metrics that a program can measure (`reward` is not used).

        `outcome`: 1 if the version's is better, −1 if the baseline's is, 0 for a tie, None if unknown.
        """
        self.has_mirrored = True
        if not self.version.admits(user, self.rules.user_cap):
            return
        is_known = outcome is not None
        for arm, shown, has_won in ((self.baseline, baseline, outcome == -1), (self.version, version, outcome == 1)):
            arm.count(user, replace(shown, reward=has_won if is_known else None))
        if is_known:
            self.pairs["reward"].update(outcome == -1, outcome == 1)
            self.no_worse.update(gain(outcome == -1, outcome == 1))
            self.slices.add_pair(version.name, version.slices, outcome == -1, outcome == 1)
        if baseline.tools is not None and version.tools is not None:
            self.pairs["tools"].update(baseline.tools, version.tools)
        if baseline.length is not None and version.length is not None:
            self.amounts["length"].update(share(baseline.length, version.length))
        self._note()

    def _note(self) -> None:
        """Add a point to the course at every `_stride`th judged turn of the version."""
        n = self.version.n_judged
        if not n or n % self._stride or (self.course and self.course[-1][0] == n):
            return
        log_e = (self.known or self.pairs["reward"]).log_e
        self.course.append([n, self.version.n_good, self.baseline.n_judged, self.baseline.n_good, round(log_e, 3)])
        if len(self.course) > MOST_POINTS:
            self.course = self.course[1::2]
            self._stride *= 2

    def _pair(self, name: str, is_version: bool, value: float) -> None:
        mine, others = self._waiting[name][is_version], self._waiting[name][not is_version]
        if not others:
            mine.append(value)
            del mine[:-MAX_WAITING]
            return
        other = others.pop()
        before, after = (other, value) if is_version else (value, other)
        if name in self.amounts:
            self.amounts[name].update(share(before, after))
            return
        self.pairs[name].update(bool(before), bool(after))
        if name == "reward":
            self.no_worse.update(gain(bool(before), bool(after)))

    @property
    def tests(self) -> dict[str, tuple[KnownBaseline | Paired | BoundedMean, float]]:
        """The tests that stop a version, by metric, with the α of each."""
        guard = self.rules.alpha / N_GUARDS
        return {
            "reward": (self.known or self.pairs["reward"], self.rules.alpha),
            "feedback": (self.pairs["feedback"], guard),
            "tools": (self.pairs["tools"], guard),
            "length": (self.amounts["length"], guard),
            "latency": (self.amounts["latency"], guard),
        }

    def is_no_worse(self) -> bool:
        """True if the judged rewards show that the version is not worse by the margin."""
        if self.known is not None:
            return self.known.is_healthy(self.rules.alpha, self.rules.beta)
        return self.no_worse.peak >= -log(self.rules.beta)

    def as_dict(self) -> dict[str, Any]:
        """The whole state, for `of`."""
        return {
            "rate": self.known.rate if self.known else None,
            "known": self.known.as_dict() if self.known else None,
            "pairs": {name: test.as_dict() for name, test in self.pairs.items()},
            "no_worse": self.no_worse.as_dict(),
            "amounts": {name: test.as_dict() for name, test in self.amounts.items()},
            "arms": [_arm(self.baseline), _arm(self.version)],
            "waiting": self._waiting,
            "has_mirrored": self.has_mirrored,
            "slices": self.slices.as_dict(),
            "course": {"points": self.course, "stride": self._stride},
        }

    @classmethod
    def of(cls, rules: Rules, state: Mapping[str, Any]) -> "Comparison":
        """The comparison whose `as_dict` is `state`. Margin and ratios stay as they were when it began."""
        made = cls(rules, state["rate"])
        made.known = KnownBaseline(**state["known"]) if state["known"] else None
        made.pairs = {name: Paired(**test) for name, test in state["pairs"].items()}
        made.no_worse = BoundedMean(**state["no_worse"])
        made.amounts = {name: BoundedMean(**test) for name, test in state["amounts"].items()}
        made.baseline, made.version = (Arm(**arm) for arm in state["arms"])
        made._waiting = state["waiting"]
        made.has_mirrored = state.get("has_mirrored", False)
        made.slices = SlicedRewards.of(state.get("slices", {}))
        course = state.get("course", {"points": [], "stride": 1})  # begun by an earlier release
        made.course, made._stride = course["points"], course["stride"]
        return made


@dataclass(frozen=True, slots=True)
class Decision:
    """The state of an observation, and why."""

    state: CanaryState
    reason: str


def decide_canary(seen: Comparison, hours: float) -> Decision:
    """Before promotion: stopped by any test, passed if shown to be no worse, skipped after `max_hours` without
    either."""
    if (stopped := _stopped(seen)) is not None:
        return stopped
    n, rules = seen.version.n_judged, seen.rules
    if n >= rules.min_turns and seen.is_no_worse():
        return Decision(CanaryState.PASSED, f"not worse by {rules.margin:.0%} or more: {_rates(seen)}")
    if hours < rules.max_hours:
        return Decision(CanaryState.RUNNING, f"{n} judged turns so far")
    if n < rules.min_turns:
        why = f"too little traffic: {n} judged turns in {hours:.3g} h, {rules.min_turns} needed"
    else:
        why = f"undecided after {n} judged turns in {hours:.3g} h: {_rates(seen)}"
    return Decision(CanaryState.SKIPPED, why)


def decide_watch(seen: Comparison) -> Decision:
    """After promotion: stopped by any test, passed after `watch_turns` judged turns."""
    if (stopped := _stopped(seen)) is not None:
        return stopped
    n = seen.version.n_judged
    if n >= seen.rules.watch_turns:
        return Decision(CanaryState.PASSED, f"nothing found in {n} judged turns: {_rates(seen)}")
    return Decision(CanaryState.RUNNING, f"{n} judged turns so far")


def _stopped(seen: Comparison) -> Decision | None:
    faults = [
        f"{_SENTENCES[name](seen)}, evidence {odds(test.peak)} to 1 (acts at {odds(-log(alpha))})"
        for name, (test, alpha) in seen.tests.items()
        if test.peak >= -log(alpha)
    ]
    faults += seen.slices.faults(seen.rules.slice_margin, seen.rules.alpha)
    return Decision(CanaryState.STOPPED, "; ".join(faults)) if faults else None


def _rates(seen: Comparison) -> str:
    new, old = seen.version, seen.baseline
    if seen.has_mirrored:
        return f"better in {new.n_good} and worse in {old.n_good} of {new.n_judged} turns that both answered"
    mine = f"{new.n_good} of {new.n_judged} judged turns good"
    if seen.known is not None:
        return f"{mine}, against a rate of {seen.known.rate:.0%}"
    return f"{mine}, against {old.n_good} of {old.n_judged}"


def _lost(name: str, what: str) -> Callable[[Comparison], str]:
    def sentence(seen: Comparison) -> str:
        test = seen.pairs[name]
        return f"{what} worse in {test.n_losses} of the {test.n_losses + test.n_wins} pairs that differ"

    return sentence


_SENTENCES: dict[str, Callable[[Comparison], str]] = {
    "reward": lambda seen: f"judged worse: {_rates(seen)}",
    "feedback": _lost("feedback", "rated"),
    "tools": _lost("tools", "tools"),
    "length": lambda seen: f"replies longer by more than a factor of {seen.rules.length_ratio:g}",
    "latency": lambda seen: f"replies slower by more than a factor of {seen.rules.latency_ratio:g}",
}


def _arm(arm: Arm) -> dict[str, Any]:
    return {name: getattr(arm, name) for name in Arm.__dataclass_fields__}
