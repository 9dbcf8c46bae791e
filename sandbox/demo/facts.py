"""The journal's facts after a demo, compared with the clients' own."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Mapped
from sqlmodel import col

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, JudgeJob, SampleRow, StepRow, VersionRow
from burnish.records import UNDECIDED, LinkRule, StepOutcome, VersionState
from burnish.sandbox.demo.traffic import Log, Turn


@dataclass(frozen=True, slots=True)
class Pulse:
    """The loop at one moment: what is recorded, judged, trained and live. `n_ready` replies are in no step yet."""

    n_recorded: int
    n_ready: int
    n_spent: int
    n_judging: int
    n_published: int
    n_refused: int
    is_open: bool
    is_on_trial: bool
    live: int

    def has_step(self, min_rows: int) -> bool:
        """True while replies are trained on, and while `min_rows` of them wait for it. A trial alone is no step."""
        return (self.is_open and not self.is_on_trial) or self.n_ready >= min_rows


def pulse(journal: Journal, agent: str) -> Pulse:
    """Cheap counts, for a screen that is drawn twice a second."""
    with journal.read() as session:

        def count(column: Mapped[object], *where: ColumnElement[bool]) -> int:
            return int(session.connection().execute(select(func.count(column)).where(*where)).scalar_one())

        from burnish.adapters.registry import lifecycle

        mine = (col(InteractionRow.agent) == agent, col(InteractionRow.may_train).is_(True))
        is_fit = (col(InteractionRow.spent_step).is_(None), col(InteractionRow.skip_reason).is_(None))
        is_open = (col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.OPEN)
        in_open_step = select(col(SampleRow.interaction_id)).where(
            col(SampleRow.step_id).in_(select(col(StepRow.step_id)).where(*is_open))
        )
        waits = (col(InteractionRow.is_ready).is_(True), col(InteractionRow.interaction_id).not_in(in_open_step))
        return Pulse(
            n_recorded=count(col(InteractionRow.interaction_id), *mine),
            n_ready=count(col(InteractionRow.interaction_id), *mine, *waits, *is_fit),
            n_spent=count(col(InteractionRow.interaction_id), *mine, col(InteractionRow.spent_step).is_not(None)),
            n_judging=count(col(JudgeJob.subject), col(JudgeJob.state).in_(("queued", "leased"))),
            n_published=count(
                col(StepRow.step_id), col(StepRow.agent) == agent, col(StepRow.outcome) == StepOutcome.PUBLISHED
            ),
            n_refused=count(
                col(VersionRow.version), col(VersionRow.agent) == agent, col(VersionRow.state) == VersionState.REFUSED
            ),
            is_open=bool(count(col(StepRow.step_id), *is_open)),
            is_on_trial=bool(
                count(col(VersionRow.version), col(VersionRow.agent) == agent, col(VersionRow.state).in_(UNDECIDED))
            ),
            live=lifecycle.alias(session, agent) or 0,
        )


def joins(journal: Journal, turns: Sequence[Turn]) -> tuple[int, int, int]:
    """(missing, misjoined, ambiguous): users' turns that the journal lacks, has joined wrongly, or has not decided."""
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
    """For every promotion, the number of client streams open at that moment."""
    with journal.read() as session:
        moments = session.scalars(
            select(col(VersionRow.decided_at))
            .where(col(VersionRow.agent) == agent, col(VersionRow.state).in_((VersionState.LIVE, VersionState.RETIRED)))
            .order_by(col(VersionRow.version))
        ).all()
    return [log.open_at(moment) for moment in moments if moment is not None]
