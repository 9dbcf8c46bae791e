"""A version's lineage: its ancestors, the step and rows that made it, its evidence, and when it was live."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.adapters.evidence.heldout_replay import UNASKED
from burnish.adapters.evidence.turn_slices import with_heads
from burnish.adapters.registry.agents import LIVE
from burnish.adapters.registry.versions import version
from burnish.journal import steps
from burnish.journal.tables import AliasRow, AuditRow, CanaryRow, ComparisonRow, InteractionRow, VersionRow
from burnish.records import VersionName

Tree = dict[str, Any]


def lineage(session: Session, agent: str, number: int) -> Tree:
    """The lineage of `agent@v<number>` as plain values. Raises NotFound for a version that never existed.

    `ancestors` leads back to the base. `step` is the training step with each of its rows (None for an import or a
    branch). `history` is every audit entry about it, oldest first. `live` are the spans (from, to; None: still) in
    which it was served.
    """
    row = version(session, agent, number)
    history = _history(session, agent, number)
    mine = (col(CanaryRow.agent) == agent, col(CanaryRow.version) == number)
    watched = session.scalars(select(CanaryRow).where(*mine).order_by(col(CanaryRow.canary_id)))
    n_turns = session.connection().execute(
        select(func.count()).where(col(InteractionRow.agent) == agent, col(InteractionRow.version) == number)
    )
    return {
        **row.model_dump(),
        "evidence": _evidence(session, row),
        "name": str(VersionName(agent, number)),
        "aliases": aliases_of(session, agent).get(number, []),
        "ancestors": _ancestors(session, row),
        "children": _children(session, agent, number),
        "step": _step(session, row),
        "canaries": [each.model_dump() for each in watched],
        "comparisons": _comparisons(session, agent, number),
        "n_turns": int(n_turns.scalar_one()),
        "live": _spans(history, number),
        "history": history,
    }


def _evidence(session: Session, row: VersionRow) -> Tree:
    """The evidence, with what its slices stand for."""
    told: Any = row.evidence.get("slices")
    if not told:
        return row.evidence
    return {**row.evidence, "slices": {**told, "by_slice": with_heads(session, told["by_slice"])}}


def aliases_of(session: Session, agent: str) -> dict[int, list[str]]:
    """The aliases of each version now."""
    found: dict[int, list[str]] = {}
    for row in session.scalars(select(AliasRow).where(col(AliasRow.agent) == agent).order_by(col(AliasRow.alias))):
        found.setdefault(row.version, []).append(row.alias)
    return found


def _ancestors(session: Session, row: VersionRow) -> list[str]:
    """The versions that this one was made from, nearest first. The base, or an unknown version, comes last."""
    found: list[str] = []
    agent, number = row.parent_agent or row.agent, row.parent
    while (name := str(VersionName(agent, number))) not in found:
        found.append(name)
        parent = session.get(VersionRow, (agent, number)) if number else None
        if parent is None:
            break
        agent, number = parent.parent_agent or parent.agent, parent.parent
    return found


def _children(session: Session, agent: str, number: int) -> list[str]:
    mine = col(VersionRow.parent_agent).is_(None) & (col(VersionRow.agent) == agent) | (
        col(VersionRow.parent_agent) == agent
    )
    rows = session.scalars(
        select(VersionRow)
        .where(mine, col(VersionRow.parent) == number)
        .order_by(col(VersionRow.agent), col(VersionRow.version))
    )
    return [str(VersionName(row.agent, row.version)) for row in rows]


def _step(session: Session, row: VersionRow) -> Tree | None:
    return steps.story(session, row.agent, row.version) if row.step_id is not None else None


def _comparisons(session: Session, agent: str, number: int) -> Mapping[str, int]:
    """The judge's comparison of its replies with the live version's. `unasked` turns have none."""
    rows = session.connection().execute(
        select(col(ComparisonRow.outcome), col(ComparisonRow.reason)).where(
            col(ComparisonRow.agent) == agent, col(ComparisonRow.version) == number
        )
    )
    names = {1: "won", -1: "lost", 0: "tied", None: "undecided"}
    found = ("unasked" if (reason or "").startswith(UNASKED) else names[outcome] for outcome, reason in rows.tuples())
    return dict(Counter(found))


def _history(session: Session, agent: str, number: int) -> list[Tree]:
    """The audit entries about this version: those under its name, and moves of the agent's aliases to or from it."""
    text = str(number)
    moved = (
        (col(AuditRow.object) == agent)
        & (col(AuditRow.action) == "promote")
        & ((col(AuditRow.before) == text) | (col(AuditRow.after) == text))
    )
    named = col(AuditRow.object) == str(VersionName(agent, number))
    rows = session.scalars(select(AuditRow).where(moved | named).order_by(col(AuditRow.audit_id)))
    return [row.model_dump() for row in rows]


def _spans(history: list[Tree], number: int) -> list[Tree]:
    """When the version was live, from the moves in `history`."""
    spans: list[Tree] = []
    for entry in history:
        if entry["action"] != "promote" or entry["before"] == entry["after"]:
            continue
        if entry["after"] == str(number):
            spans.append(
                {"alias": LIVE, "from": entry["at"], "to": None, "by": entry["actor"], "reason": entry["reason"]}
            )
        elif spans and spans[-1]["to"] is None:
            spans[-1] |= {"to": entry["at"], "ended_by": entry["actor"], "end_reason": entry["reason"]}
    return spans
