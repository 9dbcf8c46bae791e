"""Automatic rollback: one transaction from the evidence to the version before."""

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update
from sqlmodel import Session, col

from burnish.adapters.registry import agents, canaries, lifecycle
from burnish.errors import Conflict
from burnish.journal import shadows
from burnish.journal.tables import AliasRow, CanaryRow, InteractionRow, VersionRow
from burnish.records import UNDECIDED, CanaryState, Observation, VersionName, VersionState

ACTOR = "watch"
DAY = 86_400.0
ROLLED_BACK, REFUSED = "rolled back", "refused on its canary"


def roll_back(session: Session, watch: CanaryRow, reason: str, *, max_rollbacks: int) -> dict[str, Any]:
    """Make the watched version's baseline live again and clean up after the version. Returns what was done.

    Candidates that were trained from it are refused. Rows that it sampled and that no step has spent get a skip reason.
    The agent is held until an operator ends the hold. Learning is paused after `max_rollbacks` of these within a day.
    No alias leads back to the version. Raises Conflict if the alias has moved; then nothing happens.
    """
    agent, bad, good = watch.agent, watch.version, watch.baseline
    if not canaries.end(session, watch, CanaryState.STOPPED, reason, actor=ACTOR):
        raise Conflict(f"the watch over {VersionName(agent, bad)} has ended already")
    lifecycle.promote(session, agent, good, expected=bad, actor=ACTOR, reason=f"rolled back v{bad}: {reason}")
    version = session.get_one(VersionRow, (agent, bad))
    version.state, version.reason = VersionState.ROLLED_BACK, reason
    session.connection().execute(
        delete(AliasRow).where(col(AliasRow.agent) == agent, col(AliasRow.alias) == lifecycle.PREVIOUS)
    )
    refused = _refuse_children(session, agent, bad)
    n_dropped = drop_rows(session, agent, bad)
    agents.hold(session, agent, f"v{bad} was rolled back by itself: {reason}", actor=ACTOR)
    today = canaries.stopped(session, time.time() - DAY, agent)
    n_rollbacks = sum(row.kind == Observation.WATCH for row in today)
    is_paused = n_rollbacks >= max_rollbacks
    if is_paused:
        agents.set_paused(session, agent, True, actor=ACTOR, reason=f"{n_rollbacks} automatic rollbacks within a day")
    return {
        "agent": agent,
        "from": bad,
        "to": good,
        "reason": reason,
        "refused": refused,
        "rows_dropped": n_dropped,
        "rollbacks_today": n_rollbacks,
        "learning_paused": is_paused,
    }


@dataclass(frozen=True, slots=True)
class Orphan:
    """Why a candidate cannot pass whatever it is worth. `comes_again`: nothing was found against what it learned."""

    reason: str
    comes_again: bool


def orphaned(session: Session, agent: str, number: int) -> Orphan | None:
    """Whether the version that a candidate was trained from was rolled back, or is not live any more because somebody
    chose another one. Their choice would be undone if the candidate went live. None if neither is so.
    """
    row = session.get_one(VersionRow, (agent, number))
    if row.parent_agent is not None:
        return None
    parent, live = session.get(VersionRow, (agent, row.parent)), lifecycle.alias(session, agent) or 0
    if parent is not None and parent.state == VersionState.ROLLED_BACK:
        return Orphan(f"its parent {VersionName(agent, row.parent)} was rolled back", comes_again=False)
    if row.step_id is not None and row.parent != live:
        return Orphan(f"it was trained from v{row.parent}, and v{live} was made live meanwhile", comes_again=True)
    return None


def _refuse_children(session: Session, agent: str, parent: int) -> list[int]:
    children = select(VersionRow).where(
        col(VersionRow.agent) == agent, col(VersionRow.parent) == parent, col(VersionRow.state).in_(UNDECIDED)
    )
    found = session.scalars(children).all()
    for child in found:
        why = f"its parent {VersionName(agent, parent)} was rolled back"
        lifecycle.refuse(session, agent, child.version, reason=why, evidence=child.evidence, actor=ACTOR)
    return [child.version for child in found]


def has_rows(session: Session, agent: str, number: int, since: float) -> bool:
    """True if the version has turns that ended since then and that `drop_rows` would give a skip reason."""
    wanted = (
        select(col(InteractionRow.interaction_id))
        .where(col(InteractionRow.ended_at) > since, *_unspent(agent, number))
        .limit(1)
    )
    return session.scalars(wanted).first() is not None


def drop_rows(session: Session, agent: str, number: int, why: str = ROLLED_BACK) -> int:
    """Give the version's unspent turns a skip reason, unless it is live again. Returns how many."""
    live = session.get(AliasRow, (agent, lifecycle.LIVE), populate_existing=True)
    if live is not None and live.version == number:
        return 0
    shadows.drop_version(session, agent, number, f"{why}: {VersionName(agent, number)}")
    values = {"skip_reason": f"sampled from {VersionName(agent, number)}, which was {why}"}
    return int(
        session.connection().execute(update(InteractionRow).where(*_unspent(agent, number)).values(**values)).rowcount
    )


def refuse_canary(session: Session, row: CanaryRow, reason: str, *, actor: str) -> None:
    """Stop a canary and refuse its version, so that the learner starts from the live one. Its unspent rows get a skip
    reason.

    Raises Conflict if it has ended.
    """
    if not canaries.end(session, row, CanaryState.STOPPED, reason, actor=actor):
        raise Conflict(f"the canary of {VersionName(row.agent, row.version)} has ended already")
    evidence = {
        **lifecycle.version(session, row.agent, row.version).evidence,
        "canary": {"state": CanaryState.STOPPED, "reason": reason},
    }
    lifecycle.refuse(session, row.agent, row.version, reason=f"{row.kind}: {reason}", evidence=evidence, actor=actor)
    drop_rows(session, row.agent, row.version, REFUSED)


def _unspent(agent: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return (
        col(InteractionRow.agent) == agent,
        col(InteractionRow.version) == number,
        col(InteractionRow.spent_step).is_(None),
        col(InteractionRow.skip_reason).is_(None),
    )
