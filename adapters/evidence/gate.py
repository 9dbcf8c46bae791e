"""The gate: a pure function from evidence to a verdict. Insufficient evidence is never a pass.

The `fast` tier asks for mechanical soundness, a probe that shows that the engine really applies the candidate, and
non-inferiority to the base on forgetting prompts by a one-sided 95 % bound. If the base passes too few of them, the
predictions on the same prompts are compared. The `full` tier also asks for
non-inferiority to the live version on held-out live turns (adapters/evidence/heldout_replay.py). If an operator has
given acceptance prompts, both tiers ask for them (adapters/evidence/acceptance.py).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from burnish.adapters.evidence import acceptance
from burnish.adapters.evidence import heldout_replay as replay
from burnish.adapters.evidence.acceptance import Acceptance
from burnish.adapters.evidence.heldout_replay import Replay

N_MIN_RETENTION = 64
N_FORGETTING_PROMPTS = 96
"""Forgetting prompts asked of each candidate: the first of the file that the base passes.

With the default margin a candidate may lose 4. A version that loses 1 % of such prompts is then refused in 0.3 % of the
cases, and one that loses 15 % passes in 0.07 % (tests/adapters/evidence/test_gate.py).
"""


LARGE_CHANGE = 2.0
"""Nats. A version that changed one token of the probe by more may differ from its learner by more, in proportion."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Log-probs of the probe's tokens: the engine's, and the learner's under candidate, parent and base. All on one
    axis.
    """

    engine: Sequence[float]
    candidate: Sequence[float]
    parent: Sequence[float]
    base: Sequence[float]
    tolerance: float

    @property
    def gap(self) -> float:
        """Largest difference between engine and candidate."""
        return _largest(self.engine, self.candidate)

    @property
    def limit(self) -> float:
        """Largest gap that rounding explains. It grows with what the adapter changed: a product of half-precision
        numbers has an error in proportion to its size.
        """
        return self.tolerance * max(1.0, _largest(self.candidate, self.base) / LARGE_CHANGE)


class Measure(StrEnum):
    """What a candidate is compared with the base by: its answers to forgetting prompts, or its predictions of the next
    token if the base passes too few (adapters/evidence/drift.py).
    """

    ANSWERS = "answers"
    PREDICTIONS = "predictions"


@dataclass(frozen=True, slots=True)
class LostPrompt:
    """A forgetting prompt as text, and the candidate's answer to it, which failed. Both are shortened."""

    prompt: str
    reply: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Of `n` forgetting prompts that the base passes, the candidate fails `n_lost`. With the measure `predictions`: of
    `n` prompts that the engine accepts, on `n_lost` the candidate predicts otherwise than the base.

    `n_asked` were asked of the candidate on an engine. To the others it gives the base's own answers
    (learner/safety/kept_answers.py). `n_open` answers were not waited for, because none of them could change the
    verdict. They count as lost. `lost` are the prompts that it failed, if its answers were compared.
    """

    n: int
    n_lost: int
    margin: float
    n_asked: int | None = None
    n_open: int = 0
    measure: Measure = Measure.ANSWERS
    lost: tuple[LostPrompt, ...] = ()

    @property
    def loss_bound(self) -> float:
        """Upper 95 % bound (Clopper–Pearson) on the share of prompts that the candidate forgot. Gains do not offset
        it."""
        return binomial_upper(self.n_lost + self.n_open, self.n)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All evidence on a candidate. None means "not shown"."""

    mechanical_fault: str | None = None
    is_mechanical_checked: bool = False
    probe: Probe | None = None
    retention: Retention | None = None
    needs_retention: bool = True
    replay: Replay | None = None
    needs_replay: bool = False
    acceptance: Acceptance | None = None
    needs_acceptance: bool = False
    left_out: tuple[str, ...] = ()
    """What the gate went without, each with the reason."""

    def as_dict(self) -> dict[str, object]:
        """The figures without the token lists, flat enough to store and to read."""
        shown: dict[str, object] = {
            "mechanical": self.mechanical_fault or ("sound" if self.is_mechanical_checked else None)
        }
        if self.probe is not None:
            shown["probe"] = {
                "n": len(self.probe.engine),
                "gap_to_candidate": self.probe.gap,
                "gap_to_parent": _largest(self.probe.engine, self.probe.parent),
                "gap_to_base": _largest(self.probe.engine, self.probe.base),
                "tolerance": self.probe.limit,
            }
        if self.retention is not None:
            measure = {"measure": self.retention.measure.value}
            shown["retention"] = {**asdict(self.retention), **measure, "loss_bound": self.retention.loss_bound}
        if self.acceptance is not None:
            shown["acceptance"] = self.acceptance.as_dict()
        if self.replay is not None:
            shown["replay"] = self.replay.as_dict()
            if self.replay.slices is not None:
                shown["slices"] = self.replay.slices.as_dict()
        if self.left_out:
            shown["left_out"] = list(self.left_out)
        return shown


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """Passed, or the reasons against it. `has_forgotten`: it was sound, and refused for what it forgot."""

    faults: tuple[str, ...]
    has_forgotten: bool = False

    @property
    def has_passed(self) -> bool:
        return not self.faults


def decide(evidence: Evidence) -> GateVerdict:
    """The verdict: of the `full` tier if the evidence `needs_replay`, else of the `fast` one."""
    faults: list[str] = []
    if evidence.mechanical_fault:
        faults.append(evidence.mechanical_fault)
    elif not evidence.is_mechanical_checked:
        faults.append("the version's files were not checked")
    faults += _probe_faults(evidence.probe)
    has_forgotten = False
    if evidence.needs_retention and not faults:  # a candidate that failed earlier is not asked
        faults += _retention_faults(evidence.retention)
        has_forgotten = bool(faults) and evidence.retention is not None and evidence.retention.n >= N_MIN_RETENTION
    if evidence.needs_acceptance and not faults:
        faults += acceptance.faults(evidence.acceptance)
    if evidence.needs_replay and not faults:
        faults += replay.faults(evidence.replay)
    return GateVerdict(tuple(faults), has_forgotten)


def _probe_faults(probe: Probe | None) -> list[str]:
    if probe is None or not probe.engine:
        return ["no probe: the engine's log-probs were not compared with the learner's"]
    if len({len(probe.engine), len(probe.candidate), len(probe.parent), len(probe.base)}) != 1:
        return ["the probe's log-probs do not line up"]
    faults = []
    if not probe.gap <= probe.limit < math.inf:
        faults.append(f"engine and learner differ by {probe.gap:.2e} on the probe, more than {probe.limit:.2e}")
    for name, other in (("base", probe.base), ("parent", probe.parent)):
        demands_difference = _largest(probe.candidate, other) > 3 * probe.limit
        if demands_difference and not probe.gap < _largest(probe.engine, other):
            faults.append(
                f"the engine's answers are nearer to the {name} than to the candidate: the adapter is not applied"
            )
    return faults


def _retention_faults(retention: Retention | None) -> list[str]:
    is_of_answers = retention is None or retention.measure is Measure.ANSWERS
    if retention is None or retention.n < N_MIN_RETENTION:
        n, does = retention.n if retention else 0, "the base passes" if is_of_answers else "the engine accepts"
        return [f"insufficient evidence: {n} forgetting prompts that {does}, {N_MIN_RETENTION} needed"]
    if retention.loss_bound > retention.margin:
        did = "unlearned" if is_of_answers else "predicts otherwise than the base on"
        return [
            f"{did} {retention.n_lost} of {retention.n} forgetting prompts: up to {retention.loss_bound:.1%} lost "
            f"at 95 % confidence, {100 * retention.margin:.3g}% tolerated"
        ]
    return []


def tolerated(n: int, margin: float) -> int:
    """The most of `n` forgetting prompts that a candidate may lose and still pass. −1 if it may not even lose none."""
    return next((k - 1 for k in range(n + 1) if binomial_upper(k, n) > margin), n)


def binomial_upper(k: int, n: int, confidence: float = 0.95) -> float:
    """Clopper–Pearson: the largest share p at which k or fewer of n still happen with probability 1 − confidence."""
    if k >= n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = sum(math.comb(n, i) * middle**i * (1 - middle) ** (n - i) for i in range(k + 1))
        low, high = (middle, high) if below > 1 - confidence else (low, middle)
    return high


def _largest(a: Sequence[float], b: Sequence[float]) -> float:
    gaps = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return max((gap if math.isfinite(gap) else math.inf for gap in gaps), default=0.0)
