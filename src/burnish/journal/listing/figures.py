"""Figures about an agent that stay cheap however long the journal is: traffic, scores by version, fates of turns."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.journal.evidence import evidence_of_all
from burnish.journal.listing import LOOKS
from burnish.journal.listing.turns import fate
from burnish.journal.tables import InteractionRow, SampleRow, StepRow
from burnish.journal.turns import waiting
from burnish.rewards import Level, compose

Tree = dict[str, Any]
BUCKETS = 48
WAITING = 500
"""Most rated replies that wait for a step and count."""
SAMPLES = 4000
"""Most rows of steps that count, the latest ones."""
Z95 = 1.959964
FEWEST = 20
"""Rated replies of a version that is named as a measure of progress."""


def traffic(session: Session, agent: str, until: float, width: float) -> list[Tree]:
    """Replies by version in `BUCKETS` spans of `width` seconds, the last of which ends at `until`."""
    found = []
    for start in (until - width * (BUCKETS - number) for number in range(BUCKETS)):
        at = col(InteractionRow.ended_at)
        mine = (col(InteractionRow.agent) == agent, at >= start, at < start + width)
        counted = select(col(InteractionRow.version), func.count()).where(*mine)
        rows = session.connection().execute(counted.group_by(col(InteractionRow.version))).tuples()
        found.append({"at": start, "by_version": {str(version): n for version, n in rows}})
    return found


def scores(session: Session, agent: str) -> list[Tree]:
    """Rated replies by the version that gave them, oldest version first.

    `share` of them had a reward above 0, with the bounds of Wilson's 95 % interval. A reward of 0 does not count.
    `by_people` has the same figures for the rewards that a user gave. The latest `SAMPLES` rows of steps count, with
    the reward as it stood at the step, and the latest `WAITING` rated replies that no step has used.
    """
    tallies: dict[int, dict[str, list[int]]] = defaultdict(lambda: {"all": [0, 0], "people": [0, 0]})

    def add(version: int, value: float | None, source: str | None) -> None:
        if value is None or value == 0.0:
            return
        for kind in ("all", "people") if source == Level.USER else ("all",):
            tallies[version][kind][value < 0.0] += 1

    steps = select(col(StepRow.step_id)).where(col(StepRow.agent) == agent).order_by(col(StepRow.step_id).desc())
    used = (
        select(col(SampleRow.interaction_id), col(SampleRow.reward), col(SampleRow.reward_source))
        .where(col(SampleRow.step_id).in_(session.scalars(steps.limit(SAMPLES // 8)).all()))
        .order_by(col(SampleRow.step_id).desc())
        .limit(SAMPLES)
        .subquery()
    )
    joined = select(col(InteractionRow.version), used.c.reward, used.c.reward_source).join(
        used, used.c.interaction_id == col(InteractionRow.interaction_id)
    )
    for version, value, source in session.connection().execute(joined).tuples():
        add(version, value, source)
    for version, value, source in _waiting(session, agent):
        add(version, value, source)
    return [
        {"version": version, **share(*found["all"]), "by_people": share(*found["people"])}
        for version, found in sorted(tallies.items())
    ]


def progress(rows: Sequence[Mapping[str, Any]], live: int | None) -> Tree | None:
    """Whether the agent got better, from `scores`: the live version beside the oldest one that has figures. None if
    no two versions have `FEWEST` rated replies.

    `verdict` is `better` or `worse` if their 95 % intervals do not meet, else `open`. If the live version has too few
    rated replies yet, the newest one before it that has enough stands for it.
    """
    known = [row for row in rows if row["n"] >= FEWEST and (live is None or row["version"] <= live)]
    if len(known) < 2:
        return None
    old, new = known[0], known[-1]
    verdict = "better" if new["low"] > old["high"] else "worse" if new["high"] < old["low"] else "open"
    word = {"better": "Yes", "worse": "No, it got worse", "open": "Not shown yet"}[verdict]
    names = [f"{row['share']:.0%} of v{row['version']}'s rated replies" for row in (new, old)]
    sentence = f"{word}: {names[0]} were good, and {names[1]}."
    return {"from": old["version"], "to": new["version"], "verdict": verdict, "sentence": sentence}


def fates(session: Session, agent: str) -> Tree:
    """What became of the agent's latest `LOOKS` turns: counts by fate, and by reason for those that are dropped."""
    columns = (InteractionRow.skip_reason, InteractionRow.spent_step, InteractionRow.is_ready)
    latest = select(*map(col, columns)).where(col(InteractionRow.agent) == agent)
    rows: Any = session.connection().execute(latest.order_by(col(InteractionRow.ended_at).desc()).limit(LOOKS)).all()
    counts = Counter(str(fate(*row)) for row in rows)
    # "stale: 5 versions behind" is one reason, whatever the number
    dropped = Counter(str(row[0]).partition(":")[0] for row in rows if row[0] is not None)
    return {"n": len(rows), "counts": dict(counts), "dropped": dict(dropped.most_common())}


def share(n_good: int, n_bad: int) -> Tree:
    """`n` rated replies, the share of good ones, and the bounds of Wilson's 95 % interval (None without a reply)."""
    n = n_good + n_bad
    if not n:
        return {"n": 0, "share": None, "low": None, "high": None}
    p, spread = n_good / n, Z95**2 / n
    middle = (p + spread / 2) / (1 + spread)
    half = sqrt(p * (1 - p) * spread + spread**2 / 4) / (1 + spread)
    return {"n": n, "share": round(p, 4), "low": round(max(0.0, middle - half), 4), "high": round(middle + half, 4)}


def _waiting(session: Session, agent: str) -> list[tuple[int, float, str]]:
    """Version, reward and source of rated replies that no step has used: those among the agent's latest `LOOKS` turns,
    then those that wait for a step. At most `WAITING`.
    """
    mine = col(InteractionRow.agent) == agent
    columns = (
        InteractionRow.interaction_id,
        InteractionRow.version,
        InteractionRow.is_ready,
        InteractionRow.spent_step,
    )
    newest = select(*map(col, columns)).where(mine).order_by(col(InteractionRow.ended_at).desc()).limit(LOOKS)
    latest: Any = session.connection().execute(newest).all()
    waits = select(*map(col, columns)).where(mine, *waiting()).limit(WAITING)
    left: Any = session.connection().execute(waits).all()
    unspent = {str(row[0]): int(row[1]) for row in (*latest, *left) if row[2] and row[3] is None}
    versions = dict(list(unspent.items())[:WAITING])
    rewards = {name: compose(said).reward for name, said in evidence_of_all(session, list(versions)).items()}
    return [(versions[name], each.value, str(each.source)) for name, each in rewards.items() if each is not None]
