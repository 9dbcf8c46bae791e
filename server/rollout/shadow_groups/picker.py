"""Which live turns get a shadow group: recent final answers with plain sampling and a hint of their user, or the prompt
of any recent final answer if people's ratings of other replies score it.
"""

import time
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select
from sqlmodel import Session, col

from burnish.adapters.evidence.holdout import is_held_out
from burnish.config import Settings
from burnish.journal import shadows
from burnish.journal.evidence import evidence_of_all
from burnish.journal.tables import InteractionRow, JudgementRow, ShadowGroupRow, StepRow, VersionRow
from burnish.journal.turns import of_same_voice
from burnish.records import UNDECIDED, GroupState, Sampling, StepOutcome, Who, who_of
from burnish.rewards import compose
from burnish.server.rollout.shadow_groups.accepted_hints import Wishes
from burnish.serving_table import AgentRoute

LATEST = 512
"""Latest turns of an agent among which groups are begun."""
LOOKED_THROUGH = 64
"""Of those that may get one, at one look."""
WAITING = 8
"""Groups of an agent that may wait to be drawn. Later turns are worth more, unless a step waits for its groups."""
_UNSPENT = (GroupState.DRAWING, GroupState.DRAWN, GroupState.SCORED)
HOUR = 3600.0
MAX_AGE = 1800.0
"""Seconds after a live reply in which its group must be drawn, if the reply is a member."""


class Picked(NamedTuple):
    """A turn that gets a group, the record of its reward, and the hints to grade on, one a line."""

    turn: InteractionRow
    record_id: str | None
    wish: str


def pick(session: Session, agent: AgentRoute, settings: Settings) -> list[Picked]:
    """Turns of `agent` that get a group now, the latest first.

    If ratings score it, the live version replies anew, whatever version answered the turn. A step learns from no other,
    so no group begins between a step's beginning and the decision about its version. Otherwise the version that
    answered has to be loaded.
    """
    by_ratings = settings.groups.grader == "ratings"
    if by_ratings:  # a step waits for these, and takes no more
        n_free = settings.recipe.max_groups - _n_groups(session, agent.name, _UNSPENT)
    else:
        n_free = WAITING - _n_groups(session, agent.name, (GroupState.DRAWING,))
    if n_free <= 0:
        return []
    if by_ratings:
        may_begin = not _is_changing(session, agent.name) and shadows.are_rated(session, agent.name)
        found = rateable(session, agent.name, settings) if may_begin else []
    else:
        found = eligible(session, agent.name, {agent.live, *agent.loaded}, settings)
    most, counts, picked = settings.groups.max_per_user_hour, Counter[Who](), list[Picked]()
    for each in found:
        turn = each.turn
        user = who_of(turn.tenant, turn.key_id, turn.user)
        if _n_of_user(session, turn) + counts[user] < most and len(picked) < n_free:
            picked.append(each)
            counts[user] += 1
    return picked


def eligible(session: Session, agent: str, loaded: Collection[int], settings: Settings) -> list[Picked]:
    """Turns without a group that may get one, the latest first."""
    longest = settings.recipe.group_max_tokens
    is_loaded = col(InteractionRow.version).in_(list(loaded))
    is_young = col(InteractionRow.ended_at) >= time.time() - MAX_AGE
    latest = _latest(session, agent, is_loaded, is_young, _speaks(settings))
    found = [row for row in latest if _is_fit(row, longest, settings.holdout)]
    evidence = evidence_of_all(session, [row.interaction_id for row in found])
    composed = [(row, compose(evidence[row.interaction_id])) for row in found]
    rewarded = [
        (row, effective.reward)
        for row, effective in composed
        if effective.withheld is None and effective.reward is not None
    ]
    wishes = Wishes(session, settings)
    wished = [Picked(row, next(iter(reward.record_ids), None), wishes.of(row, reward.hint)) for row, reward in rewarded]
    return [each for each in wished if each.wish]


def rateable(session: Session, agent: str, settings: Settings) -> list[Picked]:
    """Turns without a group whose prompt gets one to be scored by people's ratings of other replies, the latest first.
    Nobody need have rated them, and they may be old. They carry no record and no hint.
    """
    longest = settings.recipe.group_max_tokens
    found = _latest(session, agent)
    return [Picked(row, None, "") for row in found if _is_fit(row, longest, settings.holdout, is_redrawn=True)]


def _is_changing(session: Session, agent: str) -> bool:
    """True from a step's beginning until its version is decided."""
    step = select(col(StepRow.step_id)).where(col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.OPEN)
    version = select(col(VersionRow.version)).where(
        col(VersionRow.agent) == agent, col(VersionRow.state).in_(UNDECIDED)
    )
    return any(session.scalar(each.limit(1)) is not None for each in (step, version))


def _latest(session: Session, agent: str, *conditions: Any) -> list[InteractionRow]:
    """Turns without a group that ended by themselves in text, with further `conditions`."""
    newest = select(col(InteractionRow.interaction_id)).where(col(InteractionRow.agent) == agent)
    newest = newest.order_by(col(InteractionRow.ended_at).desc()).limit(LATEST)
    mine = col(InteractionRow.interaction_id).in_(newest)
    whole = (
        col(InteractionRow.is_aborted).is_(False),
        col(InteractionRow.quarantine).is_(None),
        col(InteractionRow.upstream).is_(None),
        col(InteractionRow.finish_reason) == "stop",
    )
    fit = (col(InteractionRow.may_train).is_(True), col(InteractionRow.kind) == "main", col(InteractionRow.choice) == 0)
    has_none = (
        ~select(col(ShadowGroupRow.interaction_id))
        .where(col(ShadowGroupRow.interaction_id) == col(InteractionRow.interaction_id))
        .exists()
    )
    wanted = select(InteractionRow).where(mine, *whole, *fit, has_none, *conditions)
    return list(session.scalars(wanted.order_by(col(InteractionRow.ended_at).desc()).limit(LOOKED_THROUGH)))


def _speaks(settings: Settings) -> Any:
    """A turn has an accepted hint, or a reward if a user's earlier hints do as well."""
    hinted = (
        select(col(JudgementRow.judgement_id))
        .where(
            col(JudgementRow.interaction_id) == col(InteractionRow.interaction_id),
            col(JudgementRow.hint_status) == "accepted",
        )
        .exists()
    )
    rewarded = or_(col(InteractionRow.is_ready).is_(True), col(InteractionRow.spent_step).is_not(None))
    return rewarded if settings.groups.earlier_hints else hinted


def _is_fit(row: InteractionRow, longest: int, holdout: float, *, is_redrawn: bool = False) -> bool:
    """True if the reply is short enough, and was sampled as its group will be. `is_redrawn` groups are sampled in their
    own way.
    """
    is_short = 0 < len(row.token_ids) // 4 <= longest
    sampling = Sampling(**row.sampling)  # type: ignore[arg-type]
    is_alike = not (sampling.is_constrained or sampling.has_logit_bias) if is_redrawn else sampling.is_plain
    return is_short and is_alike and not is_held_out(row.session_id, holdout)


def _n_groups(session: Session, agent: str, states: Collection[GroupState]) -> int:
    wanted = select(func.count()).where(
        col(ShadowGroupRow.agent) == agent,
        col(ShadowGroupRow.state).in_(states),
        col(ShadowGroupRow.spent_step).is_(None),
    )
    return int(session.connection().execute(wanted).scalar_one())


def _n_of_user(session: Session, row: InteractionRow) -> int:
    """Groups begun within the last hour for turns of the same user, or of the same key without one."""
    wanted = (
        select(func.count())
        .select_from(ShadowGroupRow)
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(ShadowGroupRow.interaction_id))
        .where(
            col(ShadowGroupRow.created_at) >= time.time() - HOUR,
            *of_same_voice(row),
        )
    )
    return int(session.connection().execute(wanted).scalar_one())
