"""How near an agent is to what the gate tolerates of forgetting, and how much harder its anchors pull therefore.

A candidate that forgets too much is refused; its rows come once more, then they are spent. Where the live version
stands at the limit already, the next candidate would be refused like the one before, and nothing would be learned any
more. So the anchors' weight is a multiplier on the gate's constraint: it grows as the constraint binds, and falls back
as it does not (a dual variable, read off the journal instead of being kept, so that a restart or a replay finds the
same). And a step after such a refusal has no momentum: nine tenths of it would be the way on which the refused child
was lost.

Where that is not enough, it is mostly a prompt or two on a knife's edge that any step pushes over, one of anchors alone
as well. So after a second refused child each step ends nearer to the base, where those prompts were right.

What is held back so has a price, and the gate may ask for that too: acceptance prompts or live turns held out, which
the base answers worse. A child that kept what the base could and was refused there has paid too much, so it halves the
count of those that forgot. Without that each child of the same live version would be held back as far as the last, and
be refused like it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.gate import tolerated
from burnish.journal.tables import VersionRow
from burnish.learner.safety.backoff import BEHAVIOUR
from burnish.records import VersionState

MOST = 16.0
"""Largest factor: beyond, anchors are all that a step is made of."""
LEAST = 0.5
"""Least that is left of an adapter: beyond, little of what it has learned is."""
BEYOND = tuple(key for key in BEHAVIOUR if key != "retention")
"""What the gate asks of those that kept what the base could."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Of `n_tolerated` retention prompts that a version may lose the live one has lost `n_lost`; `n_refused` children
    of it lost more.

    Each child that did not, and was refused for something else that it had become, halves `n_refused` (rounded down).
    """

    n_lost: int = 0
    n_tolerated: int = 0
    n_refused: int = 0

    def factor(self, growth: float) -> float:
        """What the anchors' weight is multiplied by: `growth` for each refused child, `growth`² at the limit, 1 up to
        half of it."""
        nearness = min(1.0, max(0.0, 2.0 * self.n_lost / self.n_tolerated - 1.0)) if self.n_tolerated > 0 else 0.0
        exponent = 2.0 * nearness + self.n_refused
        return growth**exponent if exponent * math.log(growth) < math.log(MOST) else MOST

    def shrink(self, factor: float) -> float:
        """What the next child's adapter is multiplied by: `factor` for each refused child but the first."""
        return float(max(LEAST, factor ** max(0, self.n_refused - 1)))


def forgetting(session: Session, agent: str, live: int) -> Forgetting:
    """What the gate has seen of `live` and of the versions made from it."""
    row = session.get(VersionRow, (agent, live)) if live else None
    n_lost, n_tolerated = _lost(row.evidence) if row is not None else (0, 0)
    query = select(col(VersionRow.evidence)).where(
        col(VersionRow.agent) == agent, col(VersionRow.parent) == live, col(VersionRow.state) == VersionState.REFUSED
    )
    return Forgetting(n_lost, n_tolerated, counted(session.scalars(query.order_by(col(VersionRow.version)))))


def counted(children: Iterable[Mapping[str, Any]]) -> int:
    """`Forgetting.n_refused`, from the evidence on one version's refused children, oldest first."""
    found = 0
    for evidence in children:
        lost, most = _lost(evidence)
        if lost > most:
            found += 1
        elif any(evidence.get(key) for key in BEYOND):
            found //= 2
    return found


def _lost(evidence: Mapping[str, Any]) -> tuple[int, int]:
    """Prompts lost, those not waited for among them, and how many the gate tolerates; 0, 0 where it has not asked."""
    seen = evidence.get("retention")
    if not seen:
        return 0, 0
    return seen["n_lost"] + seen.get("n_open", 0), max(0, tolerated(seen["n"], seen["margin"]))
