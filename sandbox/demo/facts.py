"""What the journal says after a demo, held against what the clients know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, JudgeJob, StepRow, VersionRow
from burnish.records import LinkRule, StepOutcome, VersionState
from burnish.sandbox.demo.traffic import Log, Turn


@dataclass(frozen=True, slots=True)
class Pulse:
    """The loop at one moment: what is recorded, judged, trained and live."""

    n_recorded: int
    n_ready: int
    n_spent: int
    n_judging: int
    n_published: int
    n_refused: int
    is_open: bool
    live: int


def pulse(journal: Journal, agent: str) -> Pulse:
    """Cheap counts, for a screen that is drawn twice a second."""
    turn: Any = InteractionRow
    job: Any = JudgeJob
    version: Any = VersionRow
    step: Any = StepRow

    with journal.read() as session:

        def count(column: Any, *where: Any) -> int:
            return int(session.connection().execute(select(func.count(column)).where(*where)).scalar_one())

        from burnish.adapters.registry import lifecycle

        mine = (turn.agent == agent, turn.may_train.is_(True))
        is_fit = (turn.spent_step.is_(None), turn.skip_reason.is_(None))
        return Pulse(
            n_recorded=count(turn.interaction_id, *mine),
            n_ready=count(turn.interaction_id, *mine, turn.is_ready.is_(True), *is_fit),
            n_spent=count(turn.interaction_id, *mine, turn.spent_step.is_not(None)),
            n_judging=count(job.subject, job.state.in_(("queued", "leased"))),
            n_published=count(step.step_id, step.agent == agent, step.outcome == StepOutcome.PUBLISHED),
            n_refused=count(version.version, version.agent == agent, version.state == VersionState.REFUSED),
            is_open=bool(count(step.step_id, step.agent == agent, step.outcome == StepOutcome.OPEN)),
            live=lifecycle.alias(session, agent) or 0,
        )


def joins(journal: Journal, turns: Sequence[Turn]) -> tuple[int, int, int]:
    """(missing, misjoined, ambiguous): users' turns that the journal lacks, has joined wrongly, or has left undecided."""
    n_missing = n_misjoined = n_ambiguous = 0
    with journal.read() as session:
        for turn in turns:
            row = session.get(InteractionRow, turn.response_id)
            if row is None:
                n_missing += 1
            elif row.link_rule == LinkRule.AMBIGUOUS:
                n_ambiguous += 1
            elif row.parent_id != turn.previous_id:
                n_misjoined += 1
    return n_missing, n_misjoined, n_ambiguous


def swaps(journal: Journal, agent: str, log: Log) -> list[int]:
    """For every promotion, how many client streams were open at that moment."""
    version: Any = VersionRow
    with journal.read() as session:
        moments = session.scalars(
            select(version.decided_at)
            .where(version.agent == agent, version.state.in_((VersionState.LIVE, VersionState.RETIRED)))
            .order_by(version.version)
        ).all()
    return [log.open_at(moment) for moment in moments if moment is not None]
