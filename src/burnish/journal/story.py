"""One turn in full from the journal: messages, next state, judgements, reward, and training status."""

from typing import Any

from sqlalchemy import select
from sqlmodel import Session, SQLModel, col

from burnish.errors import NotFound
from burnish.journal import shadows
from burnish.journal.evidence import evidence_of
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, JudgementRow, NextStateRow, SampleRow, StepRow
from burnish.journal.turns import from_bytes, judge_subject, messages_of, rows_of
from burnish.rewards import FEEDBACK, NEXT_STATE, compose

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
        "training_status": training_status(session, row),
    }


def training_status(session: Session, row: InteractionRow) -> str:
    """The training status of a turn in words: what became of it, or what it waits for."""
    if row.skip_reason is not None:
        return f"never trained: {row.skip_reason}"
    if row.spent_step is not None:
        step = session.get(StepRow, row.spent_step)
        return (
            f"trained into v{step.version}"
            if step and step.outcome == "published"
            else f"spent in step {row.spent_step}"
        )
    jobs = {
        job.state: job
        for origin in (NEXT_STATE, FEEDBACK)
        if (job := _job(session, row.interaction_id, origin)) is not None
    }
    for state in ("leased", "queued"):
        if state in jobs:
            return _JOB_FATES[state]
    if row.is_ready:
        return "ready for the learner"
    if (withheld := compose(evidence_of(session, row.interaction_id)).withheld) is not None:
        return f"withheld: {withheld}"
    if "held" in jobs:
        return f"waits for a fit judge: {jobs['held'].error}"
    if "dead" in jobs:
        return _JOB_FATES["dead"]
    return "the judge abstained" if jobs else WAITING


def _job(session: Session, interaction_id: str, origin: str) -> JudgeJob | None:
    return session.get(JudgeJob, judge_subject(interaction_id, origin))


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
