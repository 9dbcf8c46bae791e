"""The judged rewards of two versions by slice of the traffic, in a canary, a shadow canary or a watch. Pure.

Each slice has a test of its own, on pairs of turns of that slice. It acts at E ≥ `MOST`/α, so that all tests together
are wrong with probability at most α, whichever slices turn up. The first `MOST` slices that turn up are tested, and of
one kind the first `MOST_OF_KIND`, because an agent may have a system prompt for every session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import log
from typing import Any

from burnish.adapters.evidence.sequential import Paired, odds
from burnish.adapters.evidence.slices import KEPT, MOST

MOST_OF_KIND = 8
MAX_WAITING = 50
"""Turns of one version and slice that wait for a partner."""


@dataclass(slots=True)
class Rewards:
    """One slice: judged and good turns of baseline and version, and the version's latest bad turns."""

    judged: list[int] = field(default_factory=lambda: [0, 0])
    good: list[int] = field(default_factory=lambda: [0, 0])
    bad: list[str] = field(default_factory=list)
    test: Paired = field(default_factory=Paired)
    waiting: list[list[bool]] = field(default_factory=lambda: [[], []])

    def count(self, is_version: bool, turn: str, is_good: bool, is_bad: bool) -> None:
        self.judged[is_version] += 1
        self.good[is_version] += is_good
        if is_version and is_bad and turn:
            self.bad.append(turn)
            del self.bad[:-KEPT]

    def pair(self, is_version: bool, is_good: bool) -> None:
        """Compare the turn with the newest one of the other version that has no partner yet."""
        mine, others = self.waiting[is_version], self.waiting[not is_version]
        if others:
            other = others.pop()
            self.test.update(*((other, is_good) if is_version else (is_good, other)))
        else:
            mine.append(is_good)
            del mine[:-MAX_WAITING]

    @property
    def fall(self) -> float | None:
        """The baseline's share of good turns less the version's. None if one has no judged turn."""
        if not all(self.judged):
            return None
        return self.good[0] / self.judged[0] - self.good[1] / self.judged[1]

    def has_fallen(self, margin: float, alpha: float) -> bool:
        return self.test.peak >= log(MOST / alpha) and (self.fall or 0.0) > margin


class SlicedRewards:
    """All slices of one comparison."""

    def __init__(self) -> None:
        self.all: dict[str, Rewards] = {}

    def add(self, is_version: bool, turn: str, names: Sequence[str], is_good: bool) -> None:
        """One judged turn of the version, or of its baseline."""
        for one in self._of(names):
            one.count(is_version, turn, is_good, not is_good)
            one.pair(is_version, is_good)

    def add_pair(self, turn: str, names: Sequence[str], baseline: bool, version: bool) -> None:
        """One turn that both answered, and which reply was the better one."""
        for one in self._of(names):
            one.count(False, turn, baseline, version)
            one.count(True, turn, version, baseline)
            one.test.update(baseline, version)

    def faults(self, margin: float, alpha: float) -> list[str]:
        """The slices that fell, as reasons to stop the version."""
        return [
            f"judged worse in the slice {name!r}: {one.good[1]} of {one.judged[1]} turns good, against {one.good[0]} "
            f"of {one.judged[0]}, evidence {odds(one.test.peak)} to 1 (acts at {odds(log(MOST / alpha))})"
            for name, one in self.all.items()
            if one.has_fallen(margin, alpha)
        ]

    def table(self, margin: float, alpha: float) -> list[dict[str, Any]]:
        """The slices in which both versions have judged turns, the worst first (by the evidence that it fell)."""
        shown = [(name, one) for name, one in self.all.items() if one.fall is not None]
        # a slice that holds every turn says what the whole comparison says
        n = max((one.judged[1] for _, one in shown), default=0)
        several = {name.partition(":")[0] for name, one in shown if one.judged[1] < n}
        ranked = sorted(shown, key=lambda each: (each[1].test.peak, each[1].fall or 0.0), reverse=True)
        return [
            {
                "slice": name,
                "state": "fallen" if one.has_fallen(margin, alpha) else "open",
                "baseline": {"judged": one.judged[0], "good": one.good[0]},
                "version": {"judged": one.judged[1], "good": one.good[1]},
                "fall": round(one.fall or 0.0, 4),
                "n_pairs": one.test.n,
                "odds": odds(one.test.peak),
                "lost": list(one.bad),
            }
            for name, one in ranked
            if name.partition(":")[0] in several
        ]

    def as_dict(self) -> dict[str, Any]:
        """The state, for `of`."""
        return {name: asdict(one) for name, one in self.all.items()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "SlicedRewards":
        made = cls()
        made.all = {name: Rewards(**{**one, "test": Paired(**one["test"])}) for name, one in state.items()}
        return made

    def _of(self, names: Sequence[str]) -> list[Rewards]:
        for name in names:
            if name not in self.all and len(self.all) < MOST:
                kind = name.partition(":")[0]
                if sum(other.partition(":")[0] == kind for other in self.all) < MOST_OF_KIND:
                    self.all[name] = Rewards()
        return [self.all[name] for name in names if name in self.all]
