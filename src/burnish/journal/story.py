"""One turn in full from the journal: messages, next state, judgements, reward, and training status."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, SQLModel, col

from burnish.errors import NotFound
from burnish.journal import shadows
from burnish.journal.blobs import MANY
from burnish.journal.evidence import evidence_of
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, JudgementRow, NextStateRow, SampleRow, StepRow
from burnish.journal.turns import from_bytes, judge_subject, messages_of, rows_of
from burnish.rewards import FEEDBACK, NEXT_STATE, Effective, compose

Tree = dict[str, Any]
WAITING = "waits for what comes back"
_JOB_FATES = {"queued": "waits for the judge", "leased": "is with the judge", "dead": "left unjudged"}


def tell(session: Session, interaction_id: str) -> Tree:
    """Everything about one turn as a tree of plain values. Raises NotFound if there is no such turn."""
    row = session.get(InteractionRow, interaction_id)
    if row is None:
        raise NotFound(f"there is no turn {interaction_id!r} in the journal; `burnish turns list` names the latest")
    effective = compose(evidence_of(session, interaction_id))
    reward = effective.reward
    return {
        "turn": row.interaction_id,
        "agent": f"{row.agent}@v{row.version}",
        "session": row.session_id,
        "user": row.user,
        "quoted_user": row.quoted_user,
        "linked_by": row.link_rule,
        "kind": row.kind,
        "route": row.route,
        "ended_at": row.ended_at,
        "finish_reason": row.finish_reason,
        "messages": messages_of(session, row.message_digests),
        "reply": messages_of(session, [row.reply_digest])[0],
        "seconds": round(row.ended_at - row.started_at, 3),
        "n_tokens": len(row.token_ids) // 4,
        "logprobs": [round(value, 4) for value in from_bytes("f", row.logprobs)],
        "next_state": _next_state(session, interaction_id),
        "feedback": [_plain(each, FeedbackRow) for each in rows_of(session, FeedbackRow, interaction_id)],
        "judgements": [_plain(each, JudgementRow) for each in rows_of(session, JudgementRow, interaction_id)],
        "reward": None
        if reward is None
        else {"value": reward.value, "source": reward.source, "records": list(reward.record_ids), "hint": reward.hint},
        "withheld": effective.withheld,
        "used": _samples(session, interaction_id),
        "shadow_group": shadows.tell(session, interaction_id),
        "training_status": training_statuses(session, [row], {interaction_id: effective})[interaction_id],
    }


def training_statuses(
    session: Session, rows: Sequence[InteractionRow], effective: Mapping[str, Effective]
) -> dict[str, str]:
    """The training status of each turn in words: what became of it, or what it waits for. `effective` is what the
    evidence on each turn amounts to.
    """
    found: dict[str, str] = {}
    for start in range(0, len(rows), MANY):
        found |= _statuses(session, rows[start : start + MANY], effective)
    return found


def _statuses(session: Session, rows: Sequence[InteractionRow], effective: Mapping[str, Effective]) -> dict[str, str]:
    """The same for at most `MANY` turns, with two queries."""
    left = [row for row in rows if row.skip_reason is None]
    step = (col(StepRow.step_id), col(StepRow.version), col(StepRow.outcome))
    spent = select(*step).where(step[0].in_({row.spent_step for row in left if row.spent_step is not None}))
    trained = {number: version for number, version, outcome in session.execute(spent) if outcome == "published"}
    subjects = {
        judge_subject(row.interaction_id, origin): row.interaction_id
        for row in left
        if row.spent_step is None
        for origin in (NEXT_STATE, FEEDBACK)
    }
    job = (col(JudgeJob.subject), col(JudgeJob.state), col(JudgeJob.error))
    jobs: dict[str, dict[str, str | None]] = {}
    for subject, state, error in session.execute(select(*job).where(job[0].in_(subjects))):
        jobs.setdefault(subjects[subject], {})[state] = error

    def status(row: InteractionRow) -> str:
        if row.skip_reason is not None:
            return f"never trained: {row.skip_reason}"
        if row.spent_step is not None:
            version = trained.get(row.spent_step)
            return f"trained into v{version}" if version is not None else f"spent in step {row.spent_step}"
        name = row.interaction_id
        return _waiting(row.is_ready, jobs.get(name, {}), effective[name].withheld)

    return {row.interaction_id: status(row) for row in rows}


def _waiting(is_ready: bool, jobs: Mapping[str, str | None], withheld: str | None) -> str:
    """The status of a turn that no step has used. `jobs` are the errors of its judge jobs by state."""
    for state in ("leased", "queued"):
        if state in jobs:
            return _JOB_FATES[state]
    if is_ready:
        return "ready for the learner"
    if withheld is not None:
        return f"withheld: {withheld}"
    if "held" in jobs:
        return f"waits for a fit judge: {jobs['held']}"
    if "dead" in jobs:
        return _JOB_FATES["dead"]
    return "the judge abstained" if jobs else WAITING


def _next_state(session: Session, interaction_id: str) -> Tree | None:
    row = session.get(NextStateRow, interaction_id)
    if row is None:
        return None
    return {
        "kind": row.kind,
        "turn": row.follower_id,
        "messages": messages_of(session, row.message_digests),
        "provenance": row.provenance,
        "signals": row.signals,
    }


def _samples(session: Session, interaction_id: str) -> list[Tree]:
    rows = session.scalars(
        select(SampleRow).where(col(SampleRow.interaction_id) == interaction_id).order_by(col(SampleRow.step_id))
    )
    return [_plain(row, SampleRow) for row in rows]


def _plain(row: SQLModel, table: type[SQLModel]) -> Tree:
    return {name: getattr(row, name) for name in table.model_fields if name != "interaction_id"}
