"""Backoff: an agent's steps get smaller after versions were refused for what they had become.

A learning rate that is too large makes candidates that the gate refuses one after the other, because each starts from
the same live version and moves as far as the last. So the rate falls with each such refusal, and recovers a quarter as
fast with each version that goes live. It settles where about four of five candidates pass. If even the smallest steps
are refused, they are too short rather than too long, so the rate returns to its full size. The first refusal after a
version went live is not counted if its rows come once more: the anchors (`forgetting.py`) answer what it forgot first,
and shorter steps follow if that was not enough. As with the anchors' weight, the factor is computed from the journal
and not stored, so that a restart finds the same value. A replay finds it in the manifest.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.tables import StepRow, VersionRow
from burnish.records import StepOutcome, VersionState

N_CONSIDERED = 64
"""Versions that are considered."""
MAX_REFUSALS = 5.0
"""Refusals that count. At a factor of one half each, the rate is then 1/32. One more resets the count to 0."""
RECOVERY = 0.25
"""Share of a refusal that each version that goes live compensates."""
BEHAVIOUR = ("retention", "acceptance", "replay", "canary")
"""Evidence that is collected after a candidate was loaded and sound. A refusal on it is for what the version had
become.
"""
_HAS_SERVED = (VersionState.LIVE, VersionState.RETIRED)


def open_refusals(outcomes: Iterable[bool], comes_again: Container[int] = ()) -> float:
    """Refusals not yet compensated, after versions that were good or not, oldest first: 0 to `MAX_REFUSALS`.

    `comes_again` are the places of versions whose rows, or some of them, come once more.
    """
    found, was_good = 0.0, True
    for place, is_good in enumerate(outcomes):
        if is_good:
            found = max(0.0, found - RECOVERY)
        elif not (was_good and place in comes_again):
            found += 1.0
        was_good = is_good
        if found > MAX_REFUSALS:
            found = 0.0
    return found


def rate(session: Session, agent: str, backoff_factor: float) -> float:
    """The factor on the learning rate of the agent's next step: `backoff_factor` for each refusal not yet
    compensated."""
    query = (
        select(col(VersionRow.state), col(VersionRow.evidence), col(StepRow.outcome))
        .outerjoin(StepRow, col(StepRow.step_id) == col(VersionRow.step_id))
        .where(col(VersionRow.agent) == agent)
        .order_by(col(VersionRow.version).desc())
        .limit(N_CONSIDERED)
    )
    found = [(_outcome(row.state, row.evidence), row.outcome) for row in session.execute(query)]
    decided = [(is_good, outcome) for is_good, outcome in reversed(found) if is_good is not None]
    again = {place for place, (_, outcome) in enumerate(decided) if outcome == StepOutcome.SUPERSEDED}
    return float(backoff_factor ** open_refusals((is_good for is_good, _ in decided), again))


def _outcome(state: str, evidence: Mapping[str, Any]) -> bool | None:
    """Whether a version was good. None if that is undecided, or was decided on other grounds than what it had
    become."""
    if state in _HAS_SERVED:
        return True
    if state == VersionState.ROLLED_BACK or (
        state == VersionState.REFUSED and any(evidence.get(key) for key in BEHAVIOUR)
    ):
        return False
    return None
