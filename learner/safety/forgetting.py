"""Forgetting: how close an agent is to the gate's limit, and how much more its anchors weigh for that.

A candidate that forgets too much is refused. Its rows come once more, then they are spent. If the live version is
already at the limit, the next candidates would be refused too, and learning would stop. So the anchors' weight is a
multiplier on the gate's constraint: it grows while the constraint binds, and falls back when it does not. It is a dual
variable, computed from the journal and not stored, so that a restart or a replay finds the same value. A step after
such a refusal has no momentum, because nine tenths of it would repeat the refused child's direction.

If that is not enough, the cause is mostly a prompt or two at a decision boundary that any step pushes over, a step of
anchors alone as well. So after a second refused child each step also shrinks the adapter towards the base, which had
those prompts right.

The shrink has a price, and the gate may test for it: acceptance prompts or held-out live turns, which the base answers
worse. A child that kept what the base could and was refused on those has paid too much, so it halves the count of
children that forgot. Without that, each child of the same live version would be shrunk as far as the last, and refused
like it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.gate import tolerated
from burnish.adapters.registry.backoff import BEHAVIOUR
from burnish.journal.tables import VersionRow
from burnish.records import VersionState

MAX_FACTOR = 16.0
"""Largest factor. Beyond it a step would consist of anchors only."""
MIN_SHRINK = 0.5
"""Smallest share of an adapter that is left. Below it little of what was learned would remain."""
OTHER_EVIDENCE = tuple(key for key in BEHAVIOUR if key != "retention")
"""What the gate asks of versions that kept what the base could."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Of `n_tolerated` forgetting prompts that a version may lose, the live one has lost `n_lost`. `n_refused` children
    of it lost more.

    Each child that did not, and was refused for something else that it had become, halves `n_refused` (rounded down).
    """

    n_lost: int = 0
    n_tolerated: int = 0
    n_refused: int = 0

    def factor(self, growth: float) -> float:
        """The factor on the anchors' weight: `growth` for each refused child, `growth`² at the limit, 1 up to half of
        the limit.
        """
        nearness = min(1.0, max(0.0, 2.0 * self.n_lost / self.n_tolerated - 1.0)) if self.n_tolerated > 0 else 0.0
        exponent = 2.0 * nearness + self.n_refused
        return growth**exponent if exponent * math.log(growth) < math.log(MAX_FACTOR) else MAX_FACTOR

    def shrink(self, factor: float) -> float:
        """The factor on the next child's adapter: `factor` for each refused child but the first."""
        return float(max(MIN_SHRINK, factor ** max(0, self.n_refused - 1)))


def forgetting(session: Session, agent: str, live: int) -> Forgetting:
    """The gate's findings on `live` and on the versions made from it."""
    row = session.get(VersionRow, (agent, live)) if live else None
    n_lost, n_tolerated = _likely_lost(row.evidence) if row is not None else (0, 0)
    query = select(col(VersionRow.evidence)).where(
        col(VersionRow.agent) == agent, col(VersionRow.parent) == live, col(VersionRow.state) == VersionState.REFUSED
    )
    return Forgetting(n_lost, n_tolerated, count_refused(session.scalars(query.order_by(col(VersionRow.version)))))


def count_refused(children: Iterable[Mapping[str, Any]]) -> int:
    """`Forgetting.n_refused`, from the evidence on one version's refused children, oldest first."""
    found = 0
    for evidence in children:
        lost, most = _lost(evidence)
        if lost > most:
            found += 1
        elif any(evidence.get(key) for key in OTHER_EVIDENCE):
            found //= 2
    return found


def _lost(evidence: Mapping[str, Any]) -> tuple[int, int]:
    """Prompts lost, the unanswered ones among them, and how many the gate tolerates. Zeros if the gate has not
    asked."""
    figures = evidence.get("retention")
    if not figures:
        return 0, 0
    return figures["n_lost"] + figures.get("n_open", 0), max(0, tolerated(figures["n"], figures["margin"]))


def _likely_lost(evidence: Mapping[str, Any]) -> tuple[int, int]:
    """The same, with as large a share of the unanswered prompts lost as of the others.

    The gate stops once the unanswered ones cannot refuse a version any more. Then those and the lost ones together are
    just as many as it tolerates, whatever the version has lost.
    """
    most, n_tolerated = _lost(evidence)
    if not most:
        return 0, n_tolerated
    figures = evidence["retention"]
    n_open = figures.get("n_open", 0)
    n_answered = figures.get("n_asked", figures["n"] - n_open)
    likely = round(n_open * figures["n_lost"] / n_answered) if n_answered else n_open
    return figures["n_lost"] + likely, n_tolerated
