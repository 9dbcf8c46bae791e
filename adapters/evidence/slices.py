"""Slices of the traffic in a held-out replay: which fell, which held, and which need more turns. Pure.

A version can be as good as the other one overall and worse in one kind of turn. Each slice has a test of its own
(`Paired`, adapters/evidence/sequential.py). It may look after each round of turns, and the next round may take only
turns of slices that are still open, because its evidence holds at any look. With m slices one counts as fallen at
E ≥ m/α. So all tests together are wrong with probability at most α (Bonferroni, over Ville's inequality).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from math import log, sqrt
from typing import Any

from burnish.adapters.evidence.sequential import Paired, odds

Z95, Z975 = 1.6448536269514722, 1.959963984540054
ALPHA = 0.05
"""Probability that any slice of a version that is no worse in any counts as fallen."""
MOST = 24
"""Most slices that are tested, the largest ones."""
FEWEST = 10
"""Turns of the first round that make a slice."""
KEPT = 10
"""Ids of lost and of won turns that are kept by slice."""


class State(StrEnum):
    """A slice fell by more than the margin, or did not (97.5 %), or neither is shown.

    With a bound of 95 %, every look at a slice that did fall would close it in one of twenty cases or fewer, and there
    are several looks.
    """

    FALLEN = "fallen"
    HELD = "held"
    OPEN = "open"


@dataclass(slots=True)
class Slice:
    """One slice's pairs, with the ids of the latest turns that the version lost and won."""

    name: str
    test: Paired = field(default_factory=Paired)
    lost: list[str] = field(default_factory=list)
    won: list[str] = field(default_factory=list)

    def add(self, turn: str, outcome: int) -> None:
        """One more pair: 1 if the version's reply is better, −1 if the other's is, 0 for a tie."""
        self.test.update(outcome < 0, outcome > 0)
        for ids in (self.lost,) if outcome < 0 else (self.won,) if outcome > 0 else ():
            ids.append(turn)
            del ids[:-KEPT]

    @property
    def net_loss(self) -> float:
        """Pairs lost less pairs won, as a share of all."""
        return (self.test.n_losses - self.test.n_wins) / max(1, self.test.n)

    @property
    def loss_bound(self) -> float:
        """Upper 97.5 % bound on the net share of pairs lost."""
        return net_loss_bound(self.test.n_losses, self.test.n_wins, self.test.n, Z975)


class Slices:
    """The slices `names` of one replay. `margin` is the net share of pairs whose loss counts."""

    def __init__(self, names: Sequence[str], margin: float, alpha: float = ALPHA) -> None:
        self.margin = margin
        self.alpha = alpha
        self.all = {name: Slice(name) for name in names}

    def add(self, turn: str, names: Iterable[str], outcome: int) -> None:
        """A decided pair, in the order in which turns were asked. Slices that are not known are passed over."""
        for name in names:
            if name in self.all:
                self.all[name].add(turn, outcome)

    def state(self, one: Slice) -> State:
        """What the pairs show so far."""
        if one.test.peak >= log(len(self.all) / self.alpha) and one.net_loss > self.margin:
            return State.FALLEN
        return State.OPEN if one.loss_bound > self.margin else State.HELD

    def of(self, state: State) -> list[Slice]:
        """The slices in that state, the worst first."""
        found = [one for one in self.all.values() if self.state(one) is state]
        return sorted(found, key=_badness, reverse=True)

    @property
    def worst(self) -> Slice | None:
        """The slice with the strongest evidence of a loss. None without a slice."""
        return max(self.all.values(), key=_badness, default=None)

    def as_dict(self) -> dict[str, Any]:
        """The figures, the worst slice first, to store and to read. `odds` to 1 is the evidence that a slice fell."""
        ranked = sorted(self.all.values(), key=_badness, reverse=True)
        return {
            "margin": self.margin,
            "acts_at": odds(log(len(self.all) / self.alpha)) if self.all else None,
            "worst": ranked[0].name if ranked else None,
            "by_slice": [
                {
                    "slice": one.name,
                    "state": self.state(one).value,
                    "n": one.test.n,
                    "n_lost": one.test.n_losses,
                    "n_won": one.test.n_wins,
                    "net_loss": round(one.net_loss, 4),
                    "loss_bound": round(one.loss_bound, 4),
                    "odds": odds(one.test.peak),
                    "lost": list(one.lost),
                    "won": list(one.won),
                }
                for one in ranked
            ],
        }


def known(turns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The slices to test, from the slices of each of the first round's turns: the largest `MOST` that have at least
    `FEWEST` turns and not all of them.
    """
    sizes = Counter(name for names in turns for name in set(names))
    large = [(n, name) for name, n in sizes.items() if FEWEST <= n < len(turns)]
    return tuple(name for _, name in sorted(large, key=lambda each: (-each[0], each[1]))[:MOST])


def chosen(turns: Iterable[tuple[str, Sequence[str]]], wanted: Set[str], n: int) -> Iterator[str]:
    """Up to `n` of `turns` (id, slices) for the next round, in their order: those of the slices `wanted`, about as many
    of each.
    """
    left = dict.fromkeys(wanted, -(-n // max(1, len(wanted))))
    n_left = n
    for turn, names in turns:
        if not n_left or not any(left.values()):
            return
        if mine := [name for name in names if left.get(name, 0) > 0]:
            n_left -= 1
            for name in mine:
                left[name] -= 1
            yield turn


def faults(slices: Slices | None) -> list[str]:
    """The reasons against a candidate. Slices that are still open are none."""
    fallen = slices.of(State.FALLEN) if slices is not None else []
    return [
        f"fell in the slice {one.name!r}: lost {one.test.n_losses} and won {one.test.n_wins} of {one.test.n} held-out "
        f"pairs, {one.net_loss:.1%} net lost, {100 * slices.margin:.3g}% tolerated, evidence {odds(one.test.peak)} to "
        f"1 (acts at {odds(log(len(slices.all) / slices.alpha))})"
        for one in fallen
        if slices is not None
    ]


def net_loss_bound(n_lost: int, n_won: int, n: int, z: float = Z95) -> float:
    """Upper bound on the net share of pairs lost: Wald's interval for matched pairs, half a pair added to each cell. At
    most 1. `z` is the normal quantile of its confidence.

    Agresti and Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine 24
    (2005).
    """
    lost, won, total = n_lost + 0.5, n_won + 0.5, n + 2.0
    spread = sqrt(max(0.0, lost + won - (lost - won) ** 2 / total)) / total
    return min(1.0, (lost - won) / total + z * spread)


def _badness(one: Slice) -> tuple[float, float]:
    return one.test.peak, one.net_loss
