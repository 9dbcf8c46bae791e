"""What the journal has that no trace has told: turns, verdicts and feedback, steps, and decisions about versions.

One look reads a bounded part, along indexes that exist. Turns, verdicts and feedback are read in the order of their
times, up to the `horizon`: what ended before it is in the journal. Steps and decisions have numbers.

A turn, a verdict or feedback is missed if it comes to the journal behind the horizon: from a machine whose clock is
late by more than the tail's margin, from a record that was set aside and put back, or from a folder of segments that
this process does not see. So is feedback that is still without its turn at the horizon. What was recorded before the
first look is never told, and neither is what a later step makes of it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlmodel import Session, col

from burnish.journal.blobs import n_ids
from burnish.journal.listing import Place
from burnish.journal.tables import (
    AuditRow,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    JudgementRow,
    SampleRow,
    StepRow,
    VersionRow,
)
from burnish.records import StepOutcome, VersionName
from burnish.server.rollout.traces import message_parts, spans
from burnish.server.rollout.traces.spans import Origin, Span
from burnish.server.rollout.traces.told import Told

MOST = 200
"""Turns, verdicts and feedback that one look takes, of each."""
MOST_STEPS = 20
"""Steps that one look takes, and as many decisions."""
MOST_OPEN = 1000
"""Open steps that are remembered."""
MOST_ROWS = 500
"""Rows of a step that get its span."""
SLICE = 600.0
"""Seconds of the journal that one look covers. So no look sorts a long backlog."""


class Found(NamedTuple):
    """What one look found. `is_more`: the next one would find more at once."""

    spans: list[Span]
    told: Told
    is_more: bool


class Look:
    """One look. `is_sampled` says of a trace whether it is sent, `has_content` whether words leave."""

    def __init__(
        self, session: Session, told: Told, horizon: float, is_sampled: Callable[[Origin], bool], *, has_content: bool
    ) -> None:
        self._session = session
        self._told = told
        self._horizon = horizon
        self._is_sampled = is_sampled
        self._has_content = has_content
        self._is_more = False

    def take(self) -> Found:
        """Everything that is new, as spans."""
        turns, at_turns = self._turns()
        verdicts, at_verdicts = self._verdicts()
        feedback, at_feedback = self._feedback()
        steps, step_id, open_steps = self._steps()
        decisions, audit_id = self._decisions()
        told = Told(self._told.since, at_turns, at_verdicts, at_feedback, step_id, audit_id, open_steps)
        return Found([*turns, *verdicts, *feedback, *steps, *decisions], told, self._is_more)

    def _turns(self) -> tuple[list[Span], Place]:
        at, name = col(InteractionRow.ended_at), col(InteractionRow.interaction_id)
        columns = (*_ORIGIN, *_TURN, *(_WORDS if self._has_content else ()))
        wanted = select(*map(col, columns), *_LENGTHS).where(*self._new(at, name, self._told.turns))
        rows = self._rows(wanted.order_by(at, name).limit(MOST))
        place = self._place(self._told.turns, [(row.ended_at, row.interaction_id) for row in rows])
        sampled = [(row, origin) for row in rows if self._is_sampled(origin := Origin.of(row))]
        words = message_parts.of(self._session, [row for row, _ in sampled]) if self._has_content else {}
        return [spans.of_turn(row, origin, words.get(origin.interaction_id, {})) for row, origin in sampled], place

    def _verdicts(self) -> tuple[list[Span], Place]:
        at, name, status = col(JudgementRow.created_at), col(JudgementRow.judgement_id), col(JudgementRow.hint_status)
        found: list[JudgementRow] = []
        for is_status in (status.is_(None), status.in_(_values(status))):  # the index begins with it
            wanted = select(JudgementRow).where(is_status, *self._new(at, name, self._told.verdicts))
            found += self._session.scalars(wanted.order_by(at, name).limit(MOST))
        rows = sorted(found, key=lambda row: (row.created_at, row.judgement_id))[:MOST]
        place = self._place(self._told.verdicts, [(row.created_at, row.judgement_id) for row in rows])
        origins = self._origins(row.interaction_id for row in rows)
        told = [(row, origins[row.interaction_id]) for row in rows if row.interaction_id in origins]
        return [spans.of_verdict(row, origin, has_content=self._has_content) for row, origin in told], place

    def _feedback(self) -> tuple[list[Span], Place]:
        at, name, tenant = col(FeedbackRow.created_at), col(FeedbackRow.feedback_id), col(FeedbackRow.tenant)
        of_all = tenant.in_(_values(tenant))  # the index begins with it
        wanted = select(FeedbackRow).where(of_all, *self._new(at, name, self._told.feedback))
        rows = self._session.scalars(wanted.order_by(at, name).limit(MOST)).all()
        place = self._place(self._told.feedback, [(row.created_at, row.feedback_id) for row in rows])
        origins = self._origins(row.interaction_id for row in rows if not row.is_deleted)
        told = [(row, origins[row.interaction_id]) for row in rows if row.interaction_id in origins]
        made = [spans.of_feedback(row, origin, has_content=self._has_content) for row, origin in told]
        return [span for some in made for span in some], place

    def _steps(self) -> tuple[list[Span], int, tuple[int, ...]]:
        number = col(StepRow.step_id)
        begun = (number > self._told.step_id, col(StepRow.started_at) < self._horizon)
        new = self._session.scalars(select(StepRow).where(*begun).order_by(number).limit(MOST_STEPS)).all()
        had = self._session.scalars(select(StepRow).where(number.in_(self._told.open_steps)).order_by(number)).all()
        self._is_more |= len(new) == MOST_STEPS
        still = tuple(row.step_id for row in (*had, *new) if row.step_id and row.outcome == StepOutcome.OPEN)
        ended = [row for row in (*had, *new) if row.outcome != StepOutcome.OPEN]
        last = (new[-1].step_id if new else None) or self._told.step_id
        return [span for step in ended for span in self._of_step(step)], last, still[-MOST_OPEN:]

    def _of_step(self, step: StepRow) -> list[Span]:
        published = self._session.get(VersionRow, (step.agent, step.version))
        until = published.created_at if published is not None else step.ended_at or step.started_at
        return [spans.of_step(step, until, row, origin) for row, origin in self._rows_of(step.step_id)]

    def _decisions(self) -> tuple[list[Span], int]:
        number = col(AuditRow.audit_id)
        new = (number > self._told.audit_id, col(AuditRow.at) < self._horizon)
        entries = self._session.scalars(select(AuditRow).where(*new).order_by(number).limit(MOST_STEPS)).all()
        self._is_more |= len(entries) == MOST_STEPS
        made = [
            spans.of_decision(entry, outcome, version, since, origin)
            for entry in entries
            for version, outcome in self._decided(entry)
            for since in (self._trial_since(entry, version) if outcome != spans.ROLLED_BACK else None,)
            for _, origin in self._rows_of(version.step_id)
        ]
        return made, (entries[-1].audit_id if entries else None) or self._told.audit_id

    def _decided(self, entry: AuditRow) -> list[tuple[VersionRow, str]]:
        """The versions that an entry of the audit log decides about, if a step made them."""
        numbers: dict[int, str] = {}
        if entry.action == "promote" and entry.before is not None and entry.after is not None:
            before, after = int(entry.before), int(entry.after)
            numbers = {after: spans.PROMOTED, **({before: spans.ROLLED_BACK} if after < before else {})}
        elif entry.action == "refuse" and (name := VersionName.parse(entry.object)) is not None:
            numbers = {name.version: spans.REFUSED}
        found = [(self._session.get(VersionRow, (entry.agent, number)), said) for number, said in numbers.items()]
        return [(row, said) for row, said in found if row is not None and row.step_id is not None]

    def _trial_since(self, entry: AuditRow, version: VersionRow) -> float | None:
        """When the trial began that `entry` ended. None if the version had been decided before."""
        name = VersionName(version.agent, version.version)
        refused = and_(col(AuditRow.action) == "refuse", col(AuditRow.object) == str(name))
        promoted = and_(col(AuditRow.action) == "promote", col(AuditRow.after) == str(version.version))
        earlier = (col(AuditRow.agent) == entry.agent, col(AuditRow.audit_id) < entry.audit_id, or_(refused, promoted))
        is_first = self._session.scalars(select(col(AuditRow.audit_id)).where(*earlier).limit(1)).first() is None
        return version.created_at if is_first else None

    def _rows_of(self, step_id: int | None) -> list[tuple[SampleRow | GroupSampleRow, Origin]]:
        """The rows of a step, each with its turn. A shadow group is a row of its live turn."""
        groups = select(GroupSampleRow).where(col(GroupSampleRow.step_id) == step_id).limit(MOST_ROWS)
        samples = select(SampleRow).where(col(SampleRow.step_id) == step_id).limit(MOST_ROWS)
        found: dict[str, SampleRow | GroupSampleRow] = {}
        found |= {row.interaction_id: row for row in self._session.scalars(groups)}
        found |= {row.interaction_id: row for row in self._session.scalars(samples)}
        origins = self._origins(found)
        return [(row, origins[name]) for name, row in found.items() if name in origins]

    def _origins(self, names: Iterable[str | None]) -> dict[str | None, Origin]:
        """Those of the turns `names` whose spans are sent."""
        wanted = sorted({name for name in names if name is not None})
        told = (col(InteractionRow.interaction_id).in_(wanted), col(InteractionRow.ended_at) >= self._told.since)
        rows = self._rows(select(*map(col, _ORIGIN)).where(*told)) if wanted else ()
        return {origin.interaction_id: origin for row in rows if self._is_sampled(origin := Origin.of(row))}

    def _new(self, at: Any, name: Any, after: Place) -> tuple[ColumnElement[bool], ...]:
        return at >= after.at, or_(at > after.at, name > after.name), at < self._slice(after)

    def _slice(self, after: Place) -> float:
        """Where the part of the journal ends that this look covers."""
        return min(self._horizon, after.at + SLICE)

    def _place(self, after: Place, taken: Sequence[tuple[float, str]]) -> Place:
        """Where the next look begins."""
        if len(taken) == MOST:
            self._is_more = True
            return Place(*taken[-1])
        self._is_more |= self._slice(after) < self._horizon
        return max(after, Place(self._slice(after), ""))

    def _rows(self, wanted: Any) -> Sequence[Any]:
        return self._session.connection().execute(wanted).all()


def _values(column: Any) -> Any:
    """All values of the first column of an index. Each is found by one search."""
    first = select(func.min(column).label("value")).cte(recursive=True)
    later = select(func.min(column)).where(column > first.c.value).scalar_subquery()
    every = first.union_all(select(later).where(first.c.value.is_not(None)))
    return select(every.c.value)


_ORIGIN = (InteractionRow.interaction_id, InteractionRow.request_id, InteractionRow.agent, InteractionRow.traceparent)
_TURN = (
    InteractionRow.version,
    InteractionRow.tenant,
    InteractionRow.session_id,
    InteractionRow.kind,
    InteractionRow.route,
    InteractionRow.upstream,
    InteractionRow.started_at,
    InteractionRow.ended_at,
    InteractionRow.finish_reason,
    InteractionRow.sampling,
    InteractionRow.choice,
    InteractionRow.n_choices,
    InteractionRow.is_aborted,
)
_WORDS = (InteractionRow.message_digests, InteractionRow.reply_digest)
_LENGTHS = (
    n_ids().label("n_prompt"),
    func.length(col(InteractionRow.token_ids)).label("n_output"),
)
