"""Rejudging: recorded turns judged again, compared with their earlier verdicts.

Nothing is stored unless requested. A stored verdict stands under its own judge's identity beside the old ones, and
counts as the judges' latest one on turns that are not spent yet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlmodel import Session

from burnish.journal import Journal
from burnish.journal.evidence import settle
from burnish.journal.jobs import Leased
from burnish.journal.tables import InteractionRow, JudgementRow
from burnish.journal.turns import record_judgement
from burnish.judges.calibration import agreement
from burnish.judges.calibration.calibrate import Opinion, Terms, opinions_on
from burnish.judges.judge import Judge
from burnish.judges.verdicts import case
from burnish.judges.verdicts import judgement as entry
from burnish.judges.verdicts.case import Case

AT_ONCE = 64
"""Turns of one round, and of one transaction."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One past verdict: the turn, the source that was judged (`origin`), the judge, and the score (None for an
    abstention).
    """

    turn: str
    origin: str
    judge_id: str
    score: int | None


@dataclass(frozen=True, slots=True)
class Again:
    """A recorded verdict and the new opinion on the same turn."""

    old: Recorded
    asked: Case
    new: Opinion

    @property
    def has_changed(self) -> bool:
        """True if both gave a verdict or abstained, with different outcomes."""
        return self.new.result is not None and self.new.result.score != self.old.score


def recorded(session: Session, *, agent: str, since: float = 0.0, limit: int = 200, but: str = "") -> list[Recorded]:
    """The last `limit` judged turns of an agent that ended at `since` or later, newest first: the latest verdict on
    each origin.

    Verdicts of judge `but` are skipped if another judge has judged the turn as well.
    """
    columns, turn = JudgementRow.__table__.c, InteractionRow.__table__.c  # type: ignore[attr-defined]
    ranked = (
        select(
            *(columns.interaction_id, columns.origin, columns.judge_id, columns.score, turn.ended_at),
            func.row_number()
            .over(
                partition_by=(columns.interaction_id, columns.origin),
                order_by=(columns.judge_id == but, columns.created_at.desc(), columns.judgement_id),
            )
            .label("place"),
        )
        .join(InteractionRow, turn.interaction_id == columns.interaction_id)
        .where(turn.agent == agent, turn.ended_at >= since)
        .subquery()
    )
    latest = (
        select(ranked)
        .where(ranked.c.place == 1)
        .order_by(ranked.c.ended_at.desc(), ranked.c.interaction_id)
        .limit(limit)
    )
    return [
        Recorded(row.interaction_id, row.origin, row.judge_id, row.score)
        for row in session.connection().execute(latest)
    ]


def questions(
    session: Session, turns: Sequence[Recorded], rubrics: Mapping[str, str] | None = None
) -> list[tuple[Recorded, Case]]:
    """The judge's question about each of `turns`, the same as the worker's. A turn that cannot be asked about is left
    out, and so is a user's comment, which no model judges.
    """
    jobs = [Leased(turn.turn, {"interaction_id": turn.turn, "origin": turn.origin}, 0, "") for turn in turns]
    read = case.read(session, jobs, rubrics, spares=False)
    asked = [(turn, each) for turn, each in zip(turns, read, strict=True) if isinstance(each, Case)]
    return [(turn, each) for turn, each in asked if each.rule is not None or each.messages]


async def judge_again(
    judge: Judge,
    asked: Sequence[tuple[Recorded, Case]],
    terms: Terms,
    progress: Callable[[], None] = lambda: None,
    keep: Callable[[Sequence[Again]], None] | None = None,
) -> list[Again]:
    """The judge's opinion on each turn, `AT_ONCE` at a time. `keep` gets those of each round, so that an interruption
    loses one round.

    Raises JudgeUnavailable if the judge does not answer about the first turn of a round.
    """
    again: list[Again] = []
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        opinions = await opinions_on(judge, [question for _, question in some], terms, progress)
        judged = [Again(old, question, opinion) for (old, question), opinion in zip(some, opinions, strict=True)]
        if keep is not None:
            keep(judged)
        again += judged
    return again


def store(journal: Journal, again: Sequence[Again]) -> int:
    """Store the new verdicts in one transaction. Returns how many were new (a judge's second verdict on a turn is not
    kept).
    """
    n_stored = 0
    with journal.write() as session:
        for each in again:
            result = each.new.result
            if result is None:
                continue
            judgement = entry.judgement(each.old.turn, each.new.judge_id, result, each.asked)
            if record_judgement(session, judgement, each.old.origin):
                n_stored += 1
                settle(session, each.old.turn)
    return n_stored


def compare(again: Sequence[Again]) -> dict[str, object]:
    """Figures: how many were asked about, agreement and κ if both gave a verdict, the table old score → new score →
    turns.
    """
    with_result = [each for each in again if each.new.result is not None]
    both = [(e.old.score, e.new.result.score) for e in with_result if e.new.result]
    given = [(old, new) for old, new in both if old is not None and new is not None]
    table: dict[str, dict[str, int]] = {}
    for old, new in both:
        row = table.setdefault(_name(old), {})
        row[_name(new)] = row.get(_name(new), 0) + 1
    n_same = sum(old == new for old, new in given)
    return {
        "turns": len(again),
        "failed": len(again) - len(with_result),
        "both_gave_a_verdict": len(given),
        "agreement": n_same / len(given) if given else None,
        "agreement_interval": agreement.wilson(n_same, len(given)),
        "kappa": agreement.kappa(given),
        "changed": sum(each.has_changed for each in again),
        "table": table,
    }


def _name(score: int | None) -> str:
    return "abstained" if score is None else f"{score:+d}" if score else "0"
