"""Pairs of a shadow canary that the judge has decided or given up, from the journal. Each pair is returned once."""

from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.comparison import Turn
from burnish.adapters.evidence.settled_turns import Cursor
from burnish.adapters.evidence.turn_slices import slices_of
from burnish.journal.tables import CanaryRow, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.records import Message
from burnish.reply_metrics import tool_calls


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One turn answered by both versions. `outcome`: 1 the version is better, −1 the baseline, 0 neither, None
    unknown."""

    user: str
    outcome: int | None
    baseline: Turn
    version: Turn


def mirrored(session: Session, row: CanaryRow, cursor: Cursor, now: float, most: int = 200) -> list[Mirrored]:
    """Pairs of the shadow canary `row` decided since the last call, oldest first. Moves `cursor` on."""
    mine = (
        col(ComparisonRow.agent) == row.agent,
        col(ComparisonRow.version) == row.version,
        col(ComparisonRow.baseline) == row.baseline,
    )
    wanted = (
        select(ComparisonRow)
        .where(*mine, col(ComparisonRow.created_at) > cursor.since)
        .order_by(col(ComparisonRow.created_at))
    )
    seen, found, horizon, made = set(cursor.seen), list[Mirrored](), now, dict[str, float]()
    for each in session.scalars(wanted).all():
        made[each.interaction_id] = each.created_at
        if each.interaction_id in seen:
            continue
        is_done = each.outcome is not None or each.reason is not None
        if is_done and len(found) < most:
            if (shown := _shown(session, each)) is not None:
                found.append(shown)
            seen.add(each.interaction_id)
        else:
            horizon = min(horizon, each.created_at)
    cursor.move_on(made, seen, horizon)
    return found


def _shown(session: Session, pair: ComparisonRow) -> Mirrored | None:
    """One pair. None if the turn has been deleted."""
    turn = session.get(InteractionRow, pair.interaction_id)
    if turn is None:
        return None
    old, new = (
        _turn(reply, bool(turn.tools_digest))
        for reply in messages_of(session, [pair.baseline_digest, pair.candidate_digest])
    )
    name = turn.interaction_id
    new = replace(new, name=name, slices=slices_of(session, [name])[name])
    return Mirrored(turn.user or turn.key_id, pair.outcome, old, new)


def _turn(reply: Message, has_tools: bool) -> Turn:
    n_calls, n_broken = tool_calls(reply, has_tools)
    n_tokens = int(reply.get("n_tokens") or 0)  # 0 if the engine does not report it
    return Turn(None, None, n_broken == 0 if n_calls else None, float(n_tokens) if n_tokens else None, None)
