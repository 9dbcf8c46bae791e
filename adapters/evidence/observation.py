"""The start of an observation: what is known of the baseline, and the first state of the comparison."""

import time
from dataclasses import dataclass, replace
from math import sqrt

from sqlmodel import Session

from burnish import config
from burnish.adapters.evidence.comparison import Comparison, Rules, Turn
from burnish.adapters.evidence.settled_turns import Cursor, latest
from burnish.adapters.registry import canaries
from burnish.journal import Journal
from burnish.journal.tables import CanaryRow
from burnish.records import Observation, VersionName


@dataclass(frozen=True, slots=True)
class Beginning:
    """A prepared observation. Reading the past takes longer than a transaction should, so it is done before."""

    kind: Observation
    baseline: int
    share: float
    evidence: dict[str, object]

    def of(self, session: Session, name: VersionName, actor: str) -> CanaryRow:
        """Begin it. Raises Conflict if another of the kind runs."""
        return canaries.begin(
            session,
            name.agent,
            name.version,
            self.baseline,
            self.kind,
            share=self.share,
            actor=actor,
            evidence=self.evidence,
        )


def ready(journal: Journal, rules: Rules, agent: str, baseline: int, kind: Observation, share: float) -> Beginning:
    """A comparison with `baseline` from here on.

    If not both answer at a time (`share` is 0), it has the baseline's latest turns to make pairs with, and the
    baseline's rate is known if `rules.baseline_turns` of them are judged.
    """
    now = time.time()
    if share:
        return Beginning(kind, baseline, share, evidence_of(Comparison(rules), Cursor(now, [])))
    with journal.read() as session:
        past = latest(session, agent, baseline, rules.baseline_turns, now)
    judged = [each.turn.reward for each in past if each.turn.reward is not None]
    is_known = len(judged) >= rules.baseline_turns
    seen = Comparison(rules, lower_rate(sum(judged), len(judged)) if is_known else None)
    for each in past:
        seen.add(False, each.user, shown(each.turn, share))
    # turns of the baseline that have ended and are not judged yet are still to come
    cursor = Cursor(now - rules.patience, [each.interaction_id for each in past])
    return Beginning(kind, baseline, share, evidence_of(seen, cursor))


def canary(
    journal: Journal,
    settings: config.Settings,
    agent: str,
    baseline: int,
    share: float | None,
    rules: Rules = Rules(),  # noqa: B008
) -> Beginning:
    """A canary beside `baseline`, with `canary.share` unless a share is given."""
    return ready(
        journal, rules_of(settings, rules), agent, baseline, Observation.CANARY, share or settings.canary.share
    )


def lower_rate(n_good: int, n: int) -> float:
    """A rate that is most likely below the true one: the estimate less 1.64 standard errors (one-sided 5 %), in [0.01,
    0.99].
    """
    rate = n_good / n
    return min(0.99, max(0.01, rate - 1.64 * sqrt(rate * (1 - rate) / n)))


def shown(turn: Turn, share: float) -> Turn:
    """The turn without its latency if only one version answers at a time, because latency also depends on the machine's
    load.
    """
    return turn if share else replace(turn, latency=None)


def rules_of(settings: config.Settings, rules: Rules) -> Rules:
    """`rules` with the operator's settings."""
    chosen = settings.canary
    return replace(rules, margin=chosen.margin, max_hours=chosen.max_hours, slice_margin=settings.gate.slice_margin)


def evidence_of(seen: Comparison, cursor: Cursor) -> dict[str, object]:
    """The parts of an observation's row: `comparison` and `cursor`."""
    return {"comparison": seen.as_dict(), "cursor": {"since": cursor.since, "seen": cursor.seen}}
