"""How much smaller an agent's steps are taken because versions were refused for what they had become.

A learning rate that is too large makes candidates that the gate refuses, one after the other: each starts from the same
live version and goes as far as the last one. So the rate falls with each such refusal and comes back a quarter as fast
with each version that goes live, as a congestion window does: it settles where about four of five candidates are good.
Steps that are refused even when they are smallest are not too long, they are too short to lead out: then it begins
again with whole ones. A version whose rows come once more does not count: what it forgot is answered by the anchors
(`forgetting.py`) first, and by shorter steps where that was not enough. Like the anchors' weight it is read off the
journal instead of being kept, so that a restart finds the same; a replay finds it in the manifest.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import or_, select
from sqlmodel import Session, col

from burnish.journal.tables import StepRow, VersionRow
from burnish.records import StepOutcome, VersionState

SEEN = 64
"""Versions that are looked back on."""
MOST = 5.0
"""Refusals that count; at a half each the rate is then a thirty-second. One more, and none does."""
GIVEN_BACK = 0.25
"""Of a refusal, for each version that goes live."""
BEHAVIOUR = ("retention", "acceptance", "replay", "canary")
"""What a candidate was asked when it was loaded and sound: refused after these, it was for what it had become."""
_HAS_SERVED = (VersionState.LIVE, VersionState.RETIRED)


def open_refusals(outcomes: Iterable[bool]) -> float:
    """Refusals that are not yet made good, after versions that were good or not, oldest first: 0 to `MOST`."""
    found = 0.0
    for is_good in outcomes:
        found = max(0.0, found - GIVEN_BACK) if is_good else found + 1.0
        if found > MOST:
            found = 0.0
    return found


def rate(session: Session, agent: str, backoff_factor: float) -> float:
    """The factor on the learning rate of the agent's next step: `backoff_factor` for each refusal that is not yet made
    good."""
    query = select(col(VersionRow.state), col(VersionRow.evidence)).outerjoin(
        StepRow, col(StepRow.step_id) == col(VersionRow.step_id)
    )
    counts = or_(col(StepRow.outcome).is_(None), col(StepRow.outcome) != StepOutcome.SUPERSEDED)
    query = query.where(col(VersionRow.agent) == agent, counts).order_by(col(VersionRow.version).desc()).limit(SEEN)
    decided = [outcome for row in session.execute(query) if (outcome := _outcome(row.state, row.evidence)) is not None]
    return float(backoff_factor ** open_refusals(reversed(decided)))


def _outcome(state: str, evidence: Mapping[str, Any]) -> bool | None:
    """Whether a version was good; None where that is not decided, or was decided by something else than what it had
    become."""
    if state in _HAS_SERVED:
        return True
    if state == VersionState.ROLLED_BACK or (
        state == VersionState.REFUSED and any(evidence.get(key) for key in BEHAVIOUR)
    ):
        return False
    return None
