"""Figures about judges: what they cost, and how often people agree with them and with one another."""

import time
from collections import defaultdict
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.journal.listing import LOOKS
from burnish.journal.listing.figures import share
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeCostRow, JudgementRow
from burnish.records import FeedbackSource, TargetKind
from burnish.rewards import NEXT_STATE

Tree = dict[str, Any]
Voice = tuple[str, str | None]
"""Who speaks: a key, and the user that it is proved to speak for."""
COUNTS = ("n_votes", "n_requests", "n_prompt_tokens", "n_answer_tokens", "seconds")
DAY = 86_400.0


def costs(session: Session, agent: str | None, since: float) -> list[Tree]:
    """What judges have cost for the turns of `agent` (None: of all), by day, model and purpose, the newest day first.
    The checks of judges are no agent's, and always in it.
    """
    columns = (JudgeCostRow.day, JudgeCostRow.model, JudgeCostRow.purpose, *(getattr(JudgeCostRow, n) for n in COUNTS))
    wanted = select(*map(col, columns)).where(col(JudgeCostRow.day) >= day_of(since))
    if agent is not None:
        wanted = wanted.where(col(JudgeCostRow.agent).in_(("", agent)))
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0] * len(COUNTS))
    for day, model, purpose, *counts in session.connection().execute(wanted):
        total = sums[day, model, purpose]
        for place, count in enumerate(counts):
            total[place] += count
    found = [
        {"day": day, "model": model, "purpose": purpose, **dict(zip(COUNTS, map(_rounded, total), strict=True))}
        for (day, model, purpose), total in sorted(sums.items())
    ]
    return sorted(found, key=lambda row: row["day"], reverse=True)


def day_of(at: float) -> str:
    """The day (UTC) of a time."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def agreement(session: Session, agent: str, tenant: str) -> Tree:
    """How often people agree on the agent's replies, from the latest `LOOKS` pieces of feedback of the tenant.

    `judges`: for each judge, the rated replies with its verdict on what came back, and the share of them on which the
    sign of the latest rating is the score. `people`: the replies that several voices have rated, and the share of them
    on which all signs are the same. A voice is a key with its user. Shares come with 95 % bounds.
    """
    said = latest_ratings(session, agent, tenant)
    is_same = [len(set(signs.values())) == 1 for signs in said.values() if len(signs) > 1]
    last = {name: next(iter(signs.values())) for name, signs in said.items()}
    verdicts = session.connection().execute(
        select(col(JudgementRow.interaction_id), col(JudgementRow.judge_id), col(JudgementRow.score)).where(
            col(JudgementRow.interaction_id).in_(list(last)),
            col(JudgementRow.origin) == NEXT_STATE,
            col(JudgementRow.score).is_not(None),
        )
    )
    by_judge: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, judge_id, score in verdicts:
        by_judge[judge_id][last[name] != score] += 1
    judges = [{"judge_id": judge_id, **share(*counts)} for judge_id, counts in sorted(by_judge.items())]
    return {"judges": judges, "people": share(sum(is_same), len(is_same) - sum(is_same))}


def latest_ratings(session: Session, agent: str, tenant: str, n: int = LOOKS) -> dict[str, dict[Voice, int]]:
    """The agent's replies among the latest `n` pieces of feedback of the tenant, the latest rated one first, each with
    the sign of every voice's latest rating, the latest voice first.
    """
    columns = (FeedbackRow.interaction_id, FeedbackRow.key_id, FeedbackRow.user, FeedbackRow.rating)
    latest = (
        select(*map(col, columns), *map(col, (FeedbackRow.source, FeedbackRow.about, FeedbackRow.is_deleted)))
        .where(col(FeedbackRow.tenant) == tenant)
        .order_by(col(FeedbackRow.created_at).desc(), col(FeedbackRow.feedback_id).desc())
        .limit(n)
    )
    rows: Any = [row for row in session.connection().execute(latest) if _is_rating(row)]
    names = (col(InteractionRow.interaction_id), col(InteractionRow.agent))
    known = session.connection().execute(select(*names).where(names[0].in_({row.interaction_id for row in rows})))
    mine = {str(name) for name, of in known if of == agent}
    said: dict[str, dict[Voice, int]] = defaultdict(dict)
    for row in rows:
        if row.interaction_id in mine:
            sign = (row.rating > 0) - (row.rating < 0)
            said[row.interaction_id].setdefault((row.key_id, row.user), sign)
    return said


def _is_rating(row: Any) -> bool:
    """True for what a user said of one reply. Words on a whole session say too little about it."""
    is_said = row.rating is not None and not row.is_deleted and row.interaction_id is not None
    return is_said and row.source == FeedbackSource.USER and row.about != TargetKind.SESSION


def _rounded(value: float) -> float | int:
    return int(value) if float(value).is_integer() else round(value, 1)
