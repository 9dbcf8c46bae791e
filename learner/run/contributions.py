"""What each key put into a step, beside what it put into the steps before: part of the evidence of the version.

One key may suddenly make up most of a step. Its share, and what it was before, show that where a version is judged.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import GroupSampleRow, InteractionRow, SampleRow, StepRow
from burnish.records import StepOutcome

MOST_KEYS = 8
HEAVIEST = ("tokens", "gradient", "cosine")
"""What a step's metrics say of its heaviest user (learner/step/influence.py)."""
N_STEPS = 16
"""Steps before that a share is compared with."""


def of_step(session: Session, agent: str, step_id: int) -> dict[str, Any]:
    """Per key, the largest first: rows, shadow groups, proved users, names that were only claimed, taught hints, and
    the share of the step's weighted tokens, with that of the last steps (`share_before`, None without any).

    `heaviest` is of the user with the most weighted tokens: the share of them (`tokens`) and of the gradient
    (`gradient`), and the cosine between the step's gradient without that user and with. Absent with one user.
    """
    rows = _rows(session, [step_id])
    ended = (
        col(StepRow.agent) == agent,
        col(StepRow.outcome) != StepOutcome.OPEN,
        col(StepRow.step_id) < step_id,
    )
    last = select(col(StepRow.step_id)).where(*ended).order_by(col(StepRow.step_id).desc()).limit(N_STEPS)
    steps = [found for found in session.scalars(last) if found is not None]
    found = _told(rows, _groups(session, [step_id]), _shares(_rows(session, steps)))
    metrics = session.get_one(StepRow, step_id).metrics
    heaviest = {name: round(metrics[f"heaviest/{name}"], 4) for name in HEAVIEST if f"heaviest/{name}" in metrics}
    return found | {"heaviest": heaviest} if heaviest else found


def of_versions(session: Session, agent: str, left: Mapping[int, Collection[str]]) -> dict[str, Any]:
    """The same of several steps together: of the versions that they made, with the turns of each that are `left`."""
    made = (col(StepRow.agent) == agent, col(StepRow.version).in_(left))
    found = session.execute(select(col(StepRow.step_id), col(StepRow.version)).where(*made))
    steps = {number: left[version] for number, version in found if number is not None}
    rows = [row for row in _rows(session, list(steps)) if row.interaction_id in steps[row.step_id]]
    groups = [row for row in _groups(session, list(steps)) if row.interaction_id in steps[row.step_id]]
    return _told(rows, groups, {})


def _told(rows: list[Any], groups: list[Any], before: Mapping[str, float]) -> dict[str, Any]:
    by_key: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_key[row.key_id].append(row)
    n_groups = Counter(row.key_id for row in groups)
    shares = dict.fromkeys(n_groups, 0.0) | _shares(rows)
    told = [
        {
            "key": key,
            "n_rows": len(by_key[key]),
            "n_groups": n_groups[key],
            "n_users": len({row.user for row in by_key[key]} - {None}),
            "n_claimed_names": len({row.quoted_user for row in by_key[key]} - {None}),
            "n_hints": sum(bool(row.hint) and row.hint_status is None for row in by_key[key]),
            "n_hints_unbacked": sum(row.hint_status == UNBACKED for row in by_key[key]),
            "share": round(share, 4),
            "share_before": round(before.get(key, 0.0), 4) if before else None,
        }
        for key, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    ]
    return {"n_rows": len(rows), "n_groups": len(groups), "n_keys": len(told), "keys": told[:MOST_KEYS]}


def _groups(session: Session, steps: list[int]) -> list[Any]:
    """The shadow groups of these steps. A group's replies are the server's own, and answer a key's request."""
    wanted = (
        select(col(GroupSampleRow.step_id), col(GroupSampleRow.interaction_id), col(InteractionRow.key_id))
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(GroupSampleRow.interaction_id))
        .where(col(GroupSampleRow.step_id).in_(steps))
    )
    return list(session.execute(wanted))


def _rows(session: Session, steps: list[int]) -> list[Any]:
    wanted = (
        select(
            col(SampleRow.step_id),
            col(SampleRow.interaction_id),
            col(InteractionRow.key_id),
            col(InteractionRow.user),
            col(InteractionRow.quoted_user),
            func.length(col(InteractionRow.token_ids)).label("size"),
            col(SampleRow.weight),
            col(SampleRow.hint),
            col(SampleRow.hint_status),
        )
        .join(SampleRow, col(SampleRow.interaction_id) == col(InteractionRow.interaction_id))
        .where(col(SampleRow.step_id).in_(steps), col(SampleRow.skipped).is_(None))
    )
    return list(session.execute(wanted))


def _shares(rows: list[Any]) -> dict[str, float]:
    sizes: dict[str, float] = defaultdict(float)
    for row in rows:
        sizes[row.key_id] += row.size * (1.0 if row.weight is None else row.weight)
    total = sum(sizes.values())
    return {key: size / total for key, size in sizes.items()} if total else {}
