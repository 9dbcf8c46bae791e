"""What learning is doing now, in one sentence, and where nothing trains, why and what would change it."""

import time
from dataclasses import dataclass

from sqlalchemy import and_, case, func, select
from sqlmodel import Session, col

from burnish.adapters import model_files
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.registry import backoff
from burnish.config import Settings
from burnish.journal import judge_checks
from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import AgentRow, InteractionRow, LoadJob, SampleRow, StepRow, VersionRow
from burnish.journal.turns import waiting
from burnish.records import Fitness, StepOutcome, VersionState

UNDECIDED = (VersionState.CANDIDATE, VersionState.CANARY)
TRUNCATED = "truncated"
"""The learner's skip reason of rated replies that it cannot use, because they did not end by themselves."""
ALARM_BATCHES = 8
"""Replies since the last step, in batches of `learner.min_rows`, from which on something must be wrong."""

MOST = 2000
"""Replies since the last step that are counted, or more where the alarm needs more."""


@dataclass(frozen=True, slots=True)
class LearningState:
    """One sentence for people. `is_alarm`: nothing has trained although the traffic should have sufficed, or nothing
    can go live.
    """

    sentence: str
    is_alarm: bool = False


def learning_state(session: Session, settings: Settings, agent: str) -> LearningState:
    """The state of learning of `agent`. `settings` are the agent's own."""
    if not settings.learner.enabled:
        return LearningState("learning is off (learner.enabled = false)")
    if (lack := model_files.lack(settings.engine.model)) is not None:
        return LearningState(lack.sentence, is_alarm=True)
    row = session.get(AgentRow, agent)
    if row is not None and row.held is not None:
        return LearningState(f"learning is held: {row.held}; `burnish agents end-hold` ends it")
    if row is not None and row.is_paused:
        return LearningState("learning is paused; `burnish learner resume` continues it", is_alarm=True)
    if (busy := _busy(session, agent)) is not None:
        return LearningState(busy)
    before = _last_refusal(session, agent, settings)
    waits, is_alarm = _waits(session, settings, agent)
    lacks = BaseRecord.of(settings).standing()
    if lacks is not None and lacks.is_alarm:
        return LearningState(lacks.sentence, is_alarm=True)
    return LearningState("; ".join(part for part in (before, waits, lacks and lacks.sentence) if part), is_alarm)


def _busy(session: Session, agent: str) -> str | None:
    """The step or the trial under way."""
    step = session.scalars(
        select(StepRow).where(col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.OPEN)
    ).first()
    if step is not None:
        return f"v{step.version} is being trained, for {time.time() - step.started_at:.0f} s"
    tried = session.scalars(
        select(VersionRow).where(col(VersionRow.agent) == agent, col(VersionRow.state).in_(UNDECIDED))
    ).first()
    if tried is None:
        return None
    if tried.state == VersionState.CANARY:
        return f"v{tried.version} answers a share of the conversations as a canary; `burnish canary status` has figures"
    job = session.get(LoadJob, f"{agent}@v{tried.version}")
    waits = f" and waits: {job.error}" if job is not None and job.error else ""
    return f"v{tried.version} is on trial, for {time.time() - tried.created_at:.0f} s{waits}"


def _last_refusal(session: Session, agent: str, settings: Settings) -> str | None:
    """Why the latest version did not go live, and what the next step does otherwise. None if it went live."""
    latest = session.scalars(
        select(VersionRow).where(col(VersionRow.agent) == agent).order_by(col(VersionRow.version).desc()).limit(1)
    ).first()
    if latest is None or latest.state not in (VersionState.REFUSED, VersionState.ROLLED_BACK):
        return None
    done = "was refused" if latest.state == VersionState.REFUSED else "was rolled back"
    size = " and is shorter" if backoff.rate(session, agent, settings.recipe.backoff) < 1.0 else ""
    return f"v{latest.version} {done}: {latest.reason}; the next step starts from the live version again{size}"


def _waits(session: Session, settings: Settings, agent: str) -> tuple[str, bool]:
    """What the next step waits for, and whether it should have come long ago."""
    needed = settings.recipe.min_rows
    ready = select(func.count()).where(
        col(InteractionRow.agent) == agent, col(InteractionRow.may_train).is_(True), *waiting()
    )
    n_ready = int(session.connection().execute(ready).scalar_one())
    if n_ready >= needed:
        return f"a step on {n_ready} rated replies is due", False
    latest = select(col(StepRow.started_at)).where(col(StepRow.agent) == agent)
    since = session.scalars(latest.order_by(col(StepRow.step_id).desc()).limit(1)).first()
    most = max(MOST, ALARM_BATCHES * needed)
    n_since, n_unrated, n_cut, n_lost = _since(session, agent, since or 0.0, most)
    waits = f"waits for {needed - n_ready} more rated replies ({n_ready} of {needed})"
    is_alarm = n_since >= ALARM_BATCHES * needed
    if n_cut:
        waits += f"; {n_cut} more do not count, because their length limit cut them: raise max_tokens, or add a comment"
    if n_unbacked := _unbacked(session, agent) + n_lost:
        said = "hint was" if n_unbacked == 1 else "hints were"
        waits += f"; {n_unbacked} {said} not taught, because fewer than {settings.learner.hint_quorum} users with a "
        waits += "name have said so: make keys with --user, or set learner.hint_quorum = 1 if you are alone"
    if n_unrated and (unfit := _unfit_judge(session)) is not None:
        waits += f"; {n_unrated} replies since the last step have no rating, and {unfit}"
    elif is_alarm:
        many = f"{n_since} or more" if n_since == most else f"{n_since}"
        waits += f"; {many} replies have come since the last step; `burnish turns list` shows why they do not count"
    return waits, is_alarm


def _since(session: Session, agent: str, since: float, most: int) -> tuple[int, int, int, int]:
    """Of the replies after `since` (the latest `most`): all, those without a rating, those that were cut off, and those
    that were cut off and have a hint that too few users have said.
    """
    state = (InteractionRow.is_ready, InteractionRow.spent_step, InteractionRow.skip_reason)
    latest = (
        select(*map(col, state))
        .where(col(InteractionRow.agent) == agent, col(InteractionRow.ended_at) > since)
        .where(col(InteractionRow.may_train).is_(True))
        .order_by(col(InteractionRow.ended_at).desc())
        .limit(most)
        .subquery()
    )
    is_unrated = (latest.c.is_ready.is_(False), latest.c.spent_step.is_(None), latest.c.skip_reason.is_(None))
    unrated = func.sum(case((and_(*is_unrated), 1), else_=0))
    cut, lost = (func.sum(case((latest.c.skip_reason == why, 1), else_=0)) for why in (TRUNCATED, UNBACKED))
    counts = select(func.count(), unrated, cut, lost).select_from(latest)
    n_all, *found = session.connection().execute(counts).one()
    n_unrated, n_cut, n_lost = (int(n or 0) for n in found)
    return int(n_all), n_unrated, n_cut, n_lost


def _unbacked(session: Session, agent: str) -> int:
    """Hints of the last step that too few users had said."""
    last = select(func.max(col(StepRow.step_id))).where(col(StepRow.agent) == agent)
    mine = (col(SampleRow.step_id) == last.scalar_subquery(), col(SampleRow.hint_status) == UNBACKED)
    return int(session.connection().execute(select(func.count()).select_from(SampleRow).where(*mine)).scalar_one())


def _unfit_judge(session: Session) -> str | None:
    """Why no judge speaks. None if one does."""
    rows = judge_checks.filed(session).values()
    if not rows or any(row.state == Fitness.FIT for row in rows):
        return None
    if any(row.state == Fitness.UNCHECKED for row in rows):
        return "the judge has not been checked yet"
    return "the judge is unfit; rate replies (POST /v1/feedback), or set judge.model to a stronger model"
