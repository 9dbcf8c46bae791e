"""Whether a judge is fit to speak: pure functions of its opinions on golden cases, with the reason in words.

A judge that guesses is worse than none: its rewards train the agent on noise, and praise for bad replies trains it to
be bad. So a judge must show three things, each by the cautious end of a 95 % interval. While cases are still to come, a
wider interval (99 %) may already show that it cannot.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from burnish.judges.calibration import agreement
from burnish.judges.calibration.agreement import Z95, Z99
from burnish.judges.calibration.calibrate import Opinion
from burnish.judges.calibration.golden import GoldenCase
from burnish.records import Fitness

MIN_KAPPA = 0.4
"""Lower bound of Cohen's κ. Above 0.4 agreement counts as moderate (Landis and Koch 1977); a judge that answers +1, 0
and -1 by their shares, or always the same, has 0.
"""
MAX_FALSE_POSITIVES = 0.2
"""Upper bound of the share of bad replies that the judge praises. Policies learn to earn false praise (2507.08794), and
with more than one in five the majority of three votes is wrong in a tenth of the cases.
"""
MIN_READABLE = 0.9
"""Share of the answers that can be read. Below it, ballots of three votes become void."""
MIN_CASES = 24
"""Cases before a judge may be found unfit early."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A judge's figures on `n_cases` of `n_golden` golden cases. None for a figure without data.

    An abstention counts as 0, "cannot tell", so that a judge cannot earn κ by answering easy cases alone. A case whose
    answer cannot be read counts for `n_readable` only.
    """

    n_cases: int
    n_golden: int
    n_readable: int
    kappa: float | None
    kappa_interval: tuple[float, float] | None
    n_bad: int
    n_praised: int
    false_positive_interval: tuple[float, float] | None
    n_hints: int
    n_hints_right: int

    @property
    def readable(self) -> float:
        return self.n_readable / self.n_cases if self.n_cases else 0.0

    @property
    def false_positive_rate(self) -> float | None:
        """The share of the bad replies (-1) that the judge praised (+1)."""
        return self.n_praised / self.n_bad if self.n_bad else None

    @property
    def hint_agreement(self) -> float | None:
        """The share of the cases with a label for it in which the judge wrote a hint, or none, as labelled."""
        return self.n_hints_right / self.n_hints if self.n_hints else None

    def to_json(self) -> dict[str, Any]:
        shares = ("readable", "false_positive_rate", "hint_agreement")
        return asdict(self) | {name: getattr(self, name) for name in shares}


def figures(
    cases: Sequence[GoldenCase], opinions: Sequence[Opinion], n_golden: int | None = None, z: float = Z95
) -> Figures:
    """The figures of `opinions` on `cases`, in the same order, with intervals of `z` standard deviations."""
    read = [(case, each.result) for case, each in zip(cases, opinions, strict=True) if each.result is not None]
    pairs = [(case.score, result.score or 0) for case, result in read]
    said_of_bad = [said for right, said in pairs if right == -1]
    hinted = [(result.hint is not None) == case.has_hint for case, result in read if case.has_hint is not None]
    n_praised = said_of_bad.count(1)
    return Figures(
        n_cases=len(cases),
        n_golden=len(cases) if n_golden is None else n_golden,
        n_readable=len(read),
        kappa=agreement.kappa(pairs),
        kappa_interval=agreement.kappa_interval(pairs, z),
        n_bad=len(said_of_bad),
        n_praised=n_praised,
        false_positive_interval=agreement.wilson(n_praised, len(said_of_bad), z),
        n_hints=len(hinted),
        n_hints_right=sum(hinted),
    )


def decide(found: Figures) -> tuple[Fitness, str]:
    """Fit or unfit by the figures of all cases, and the reason for unfit."""
    interval = found.false_positive_interval
    faults = [
        _unreadable(found) if found.readable < MIN_READABLE else "",
        _disagrees(found) if found.kappa_interval is None or found.kappa_interval[0] < MIN_KAPPA else "",
        _praises(found) if interval is None or interval[1] > MAX_FALSE_POSITIVES else "",
    ]
    reason = "; ".join(filter(None, faults))
    return (Fitness.UNFIT if reason else Fitness.FIT), reason


def hopeless(cases: Sequence[GoldenCase], opinions: Sequence[Opinion], n_golden: int) -> str:
    """The reason if the cases so far show, at 99 %, that the judge cannot be fit. Empty if they do not."""
    if len(cases) < MIN_CASES:
        return ""
    wide, found = figures(cases, opinions, z=Z99), figures(cases, opinions)
    readable = agreement.wilson(wide.n_readable, wide.n_cases, Z99)
    kappa, praise = wide.kappa_interval, wide.false_positive_interval
    faults = [
        _unreadable(found) if readable is not None and readable[1] < MIN_READABLE else "",
        _disagrees(found) if kappa is not None and kappa[1] < MIN_KAPPA else "",
        _praises(found) if praise is not None and praise[0] > MAX_FALSE_POSITIVES else "",
    ]
    reason = "; ".join(filter(None, faults))
    return reason and f"{reason} (after {len(cases)} of {n_golden} cases)"


def _unreadable(found: Figures) -> str:
    return f"{found.readable:.0%} of its answers can be read, {MIN_READABLE:.0%} are needed"


def _disagrees(found: Figures) -> str:
    if found.kappa is None or found.kappa_interval is None:
        return "its agreement with the right verdicts cannot be computed"
    return f"its κ is {_bounded(found.kappa, found.kappa_interval)}, at least {MIN_KAPPA} is needed"


def _praises(found: Figures) -> str:
    rate, interval = found.false_positive_rate, found.false_positive_interval
    if rate is None or interval is None:
        return "how often it praises bad replies cannot be computed"
    return f"it praises {_bounded(rate, interval)} of bad replies, at most {MAX_FALSE_POSITIVES} is allowed"


def _bounded(value: float, interval: tuple[float, float]) -> str:
    low, high = (f"{bound:.2f}".replace("-", "−") for bound in interval)
    return f"{value:.2f} (95 %: {low} to {high})".replace("-", "−")
