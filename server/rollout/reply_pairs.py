"""Pairs of replies to one turn, a candidate's and another version's. If they differ, the judge compares them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import Session

from burnish.adapters.evidence.heldout_replay import UNASKED
from burnish.journal import blobs
from burnish.journal.jobs import enqueue, insert_or_skip
from burnish.journal.tables import CompareJob, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.records import VersionName
from burnish.server.rollout.engine.engine import Reply
from burnish.wire.redaction import redacted_message


def put(
    session: Session, name: VersionName, baseline: int, turn: str, new: Reply, old: Reply, *, redacts: bool = False
) -> None:
    """Keep the replies of candidate `name` and version `baseline` to `turn`, as the agent's turns are kept if it
    `redacts` them. Equal replies are a tie without a judge. Nothing is kept for a turn that was erased meanwhile.
    """
    if session.get(InteractionRow, turn) is None:
        return
    key = {"agent": name.agent, "version": name.version, "interaction_id": turn}
    is_same = _said(new) == _said(old)
    digests = {"candidate_digest": _kept(session, new, redacts), "baseline_digest": _kept(session, old, redacts)}
    verdict = {"outcome": 0, "reason": "the same reply"} if is_same else {"outcome": None, "reason": None}
    columns = {**key, **digests, **verdict, "baseline": baseline, "created_at": time.time(), "votes": []}
    if insert_or_skip(session, ComparisonRow, columns) and not is_same:
        enqueue(session, CompareJob, f"{name}|{turn}", key)


def put_unasked(session: Session, name: VersionName, baseline: int, turn: str, why: str) -> None:
    """Note that candidate `name` and version `baseline` could not answer `turn`, so that it is not asked again."""
    empty = _kept(session, Reply({}, None))
    key = {"agent": name.agent, "version": name.version, "interaction_id": turn}
    digests = {"candidate_digest": empty, "baseline_digest": empty}
    verdict = {"outcome": None, "reason": f"{UNASKED}{why[:500]}"}
    columns = {**key, **digests, **verdict, "baseline": baseline, "created_at": time.time(), "votes": []}
    insert_or_skip(session, ComparisonRow, columns)


def was_asked(row: ComparisonRow) -> bool:
    """False for a pair without replies."""
    return not (row.reason or "").startswith(UNASKED)


def tools_of(session: Session, turn: InteractionRow) -> Sequence[Mapping[str, Any]]:
    """The tools that the turn's request offered."""
    found: Any = messages_of(session, [turn.tools_digest])[0] if turn.tools_digest else ()
    return tuple(found)


def _said(reply: Reply) -> tuple[str, list[Any]]:
    calls = [call.get("function") for call in reply.message.get("tool_calls") or []]
    return str(reply.message.get("content") or "").strip(), calls


def _kept(session: Session, reply: Reply, redacts: bool = False) -> str:
    """The reply as the journal keeps it: a message and its length."""
    message = redacted_message(reply.message) if redacts else reply.message
    verdict = {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)}
    return blobs.store(session, {"role": "assistant", **verdict, "n_tokens": reply.n_tokens})
