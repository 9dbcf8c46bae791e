"""What was learned from, as JSONL for other trainers: the rows of TRL's conversational formats, read page by page.

| format | columns | which turns |
|---|---|---|
| `sft` | prompt, completion | right replies that users gave, else replies rewarded with `min_reward` or more |
| `dpo` | prompt, chosen, rejected | right replies that users gave, beside what the agent had said |
| `kto` | prompt, completion, label | replies whose reward is `min_reward` or more (true), or as far below 0 (false) |
| `rewards` | prompt, completion, reward, source | every reply that has a reward |

Never a turn that its client kept out of training, nor one quarantined, broken off, answered by a remote model, or on
the side. Tools and the arguments of tool calls are JSON texts, so that a column has one type whatever the tools are.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import or_, select, tuple_
from sqlmodel import Session, col

from burnish.journal import Journal
from burnish.journal.evidence import evidence_of
from burnish.journal.tables import InteractionRow
from burnish.journal.turns import blobs_of, right_reply_of
from burnish.records import Message, Reward
from burnish.rewards import compose

Row = dict[str, Any]
PAGE = 200
MIN_REWARD = 0.5
_MAY_LEAVE = ("stale", "not_chosen", "neutral", "no_signal", "unrenderable", "duplicated", "capped")
"""Skip reasons that concern the learner's own ways and say nothing against the turn."""


class Format(StrEnum):
    """The kind of trainer that reads the rows."""

    SFT = "sft"
    DPO = "dpo"
    KTO = "kto"
    REWARDS = "rewards"


def rows(
    journal: Journal,
    form: Format,
    *,
    agent: str | None = None,
    tenant: str | None = None,
    since: float | None = None,
    until: float | None = None,
    min_reward: float = MIN_REWARD,
) -> Iterator[Row]:
    """The rows, oldest turn first. `since` and `until` are seconds since the epoch. `min_reward` is above 0."""
    place: tuple[float, str] | None = None
    while True:
        with journal.read() as session:
            page = _page(session, place, agent=agent, tenant=tenant, since=since, until=until)
            made = [made for turn in page if (made := _row(session, turn, form, min_reward)) is not None]
        yield from made
        if len(page) < PAGE:
            return
        place = (page[-1].ended_at, page[-1].interaction_id)


def lines(found: Iterator[Row]) -> Iterator[str]:
    """Each row as one line of JSON."""
    for row in found:
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _page(
    session: Session,
    place: tuple[float, str] | None,
    *,
    agent: str | None,
    tenant: str | None,
    since: float | None,
    until: float | None,
) -> Sequence[InteractionRow]:
    may_leave = or_(
        col(InteractionRow.skip_reason).is_(None),
        *(col(InteractionRow.skip_reason).like(f"{skip_reason}%") for skip_reason in _MAY_LEAVE),
    )
    wanted = select(InteractionRow).where(
        col(InteractionRow.may_train).is_(True),
        col(InteractionRow.quarantine).is_(None),
        col(InteractionRow.is_aborted).is_(False),
        col(InteractionRow.upstream).is_(None),
        col(InteractionRow.kind) != "side",
        or_(col(InteractionRow.finish_reason).is_(None), col(InteractionRow.finish_reason).in_(("stop", "tool_calls"))),
        may_leave,
    )
    for column, value in ((col(InteractionRow.agent), agent), (col(InteractionRow.tenant), tenant)):
        if value is not None:
            wanted = wanted.where(column == value)
    if since is not None:
        wanted = wanted.where(col(InteractionRow.ended_at) >= since)
    if until is not None:
        wanted = wanted.where(col(InteractionRow.ended_at) < until)
    if place is not None:
        wanted = wanted.where(tuple_(col(InteractionRow.ended_at), col(InteractionRow.interaction_id)) > place)
    return session.scalars(
        wanted.order_by(col(InteractionRow.ended_at), col(InteractionRow.interaction_id)).limit(PAGE)
    ).all()


def _row(session: Session, turn: InteractionRow, form: Format, min_reward: float) -> Row | None:
    """The turn in this format. None if it has no row in it, or holds what no text column can (a picture)."""
    effective = compose(evidence_of(session, turn.interaction_id))
    if effective.withheld is not None:
        return None
    right = right_reply_of(session, turn.interaction_id) if form in (Format.SFT, Format.DPO) else None
    text = (right.demonstration or right.correction) if right is not None else None
    says = _lesson(form, effective.reward, text, min_reward)
    if says is None:
        return None
    wanted = [*turn.message_digests, turn.reply_digest, *([turn.tools_digest] if turn.tools_digest else [])]
    blobs = blobs_of(session, wanted)
    prompt = [_plain(blobs[digest]) for digest in turn.message_digests]
    reply = _plain(blobs[turn.reply_digest])
    if reply is None or any(message is None for message in prompt):
        return None
    better = [{"role": "assistant", "content": text}]
    tools = json.dumps(blobs[turn.tools_digest], ensure_ascii=False) if turn.tools_digest else "[]"
    about: Row = {"tools": tools, "id": turn.interaction_id, "agent": turn.agent, "version": turn.version}
    if form is Format.DPO:
        return (
            None if reply.get("content") == text else {"prompt": prompt, "chosen": better, "rejected": [reply], **about}
        )
    return {"prompt": prompt, "completion": better if text else [reply], **says, **about}


def _lesson(form: Format, reward: Reward | None, text: str | None, min_reward: float) -> Row | None:
    """The columns of this format besides the prompt. None if the turn has none."""
    value = reward.value if reward is not None else None
    match form:
        case Format.SFT:
            return {} if text or (value is not None and value >= min_reward) else None
        case Format.DPO:
            return {} if text else None
        case Format.KTO:
            return {"label": value > 0} if value is not None and abs(value) >= min_reward else None
        case Format.REWARDS:
            return {"reward": value, "source": str(reward.source)} if reward is not None else None


def _plain(message: Message) -> Row | None:
    """A message with text only. None if it holds something else."""
    content = message.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in content):
            return None
        content = "".join(str(part.get("text", "")) for part in content)
    made: Row = {"role": message.get("role"), "content": content if content is not None else ""}
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in calls]
    for name in ("name", "tool_call_id"):
        if message.get(name):
            made[name] = message[name]
    return made


def _call(call: Mapping[str, Any]) -> Row:
    function = call.get("function") or {}
    arguments = function.get("arguments", "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call.get("id"), "type": "function", "function": {"name": function.get("name"), "arguments": text}}
