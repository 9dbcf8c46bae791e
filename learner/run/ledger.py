"""The learner's side of the journal: which turns are ready, and which step spent them. Each row is spent exactly once.

Opening a step allocates the version number before any file is written. A step that a crash left open is superseded:
its rows come again under a new number. So is a step if its version was refused for what it forgot. A row's second
failure spends it, whatever the rows beside it have been through.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select, update
from sqlmodel import Session, col

from burnish.adapters.registry import agents, lifecycle
from burnish.adapters.registry.versions import next_number
from burnish.errors import LearnerError, Postponed
from burnish.journal import Journal
from burnish.journal.evidence import evidence_of_all
from burnish.journal.hint_quorum import UNBACKED, Quorum, quorum_of
from burnish.journal.jobs import take_lease
from burnish.journal.tables import AgentRow, InteractionRow, LeaseRow, SampleRow, StepRow, VersionRow
from burnish.journal.turns import interaction_of, right_reply_of, waiting
from burnish.learner.data.samples import Right, RightKind
from burnish.learner.data.shadow_groups import Group, record_choice, record_outcomes
from burnish.learner.run import contributions
from burnish.learner.run.history import History
from burnish.learner.step.report import StepReport
from burnish.records import UNDECIDED, Interaction, Reward, StepOutcome, Who, who_of
from burnish.rewards import compose

NOTHING = StepReport()
AT_ONCE = 500
"""Steps that one query counts."""
"""A user: tenant, key and user field."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A turn that may be trained, with its reward and the user's right reply, if any, as the records stand now.

    `n_earlier` counts the turns of the same user that the agent's steps have spent. `unbacked` is the hint that the
    reward lacks, because too few users have said it.
    """

    interaction: Interaction
    session_id: str
    reward: Reward | None
    right: Right | None = None
    n_earlier: int | None = None
    unbacked: str | None = None


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that has begun: its number, the version that it will publish, the version that it starts from, and the
    number of the try.
    """

    step_id: int
    version: int
    parent: int
    attempt: int


class Ledger:
    """The ledger of one agent's steps. `hint_quorum` is the setting of that name."""

    def __init__(self, journal: Journal, agent: str, hint_quorum: int = 2) -> None:
        self._journal = journal
        self._hint_quorum = hint_quorum
        self.agent = agent
        self.history = History(journal, agent)
        self._spent_of: Counter[Who] = Counter()
        self._counted: set[int] = set()  # the steps in that sum

    def acquire_lease(self, holder: str, *, seconds: float = 30.0) -> bool:
        """Take or renew the lease to train this agent. False while another learner has it."""
        with self._journal.write() as session:
            return take_lease(session, f"learner:{self.agent}", holder, seconds)

    def release_lease(self, holder: str) -> None:
        """Give back the lease to train this agent if `holder` has it."""
        with self._journal.write() as session:
            session.connection().execute(
                update(LeaseRow)
                .where(col(LeaseRow.name) == f"learner:{self.agent}", col(LeaseRow.holder) == holder)
                .values(until=0.0)
            )

    def is_paused(self) -> bool:
        with self._journal.read() as session:
            agent = session.get(AgentRow, self.agent)
            return agent is not None and agent.is_paused

    def is_step_asked(self) -> bool:
        """True if an operator has asked for a step now, however few rows are ready."""
        with self._journal.read() as session:
            return agents.is_step_asked(session, self.agent)

    def answer_step(self) -> None:
        """Clear the operator's request: its step begins, or it cannot be taken."""
        with self._journal.write() as session:
            agents.answer_step(session, self.agent)

    def live(self) -> int:
        with self._journal.read() as session:
            return lifecycle.alias(session, self.agent) or 0

    def undecided(self) -> int | None:
        """The version on trial or on canary, if any. No new step begins until it is decided."""
        with self._journal.read() as session:
            found = session.scalars(
                select(col(VersionRow.version)).where(
                    col(VersionRow.agent) == self.agent, col(VersionRow.state).in_(UNDECIDED)
                )
            ).first()
            return int(found) if found is not None else None

    def ready_ids(self, limit: int) -> list[str]:
        """Ids of turns that may be trained, oldest first."""
        query = (
            select(col(InteractionRow.interaction_id))
            .where(
                col(InteractionRow.agent) == self.agent,
                *waiting(),
            )
            .order_by(col(InteractionRow.ended_at))
            .limit(limit)
        )
        with self._journal.read() as session:
            return list(session.scalars(query))

    def count_ready(self) -> tuple[int, float | None]:
        """How many turns are ready, and when the oldest ended."""
        query = select(func.count(), func.min(col(InteractionRow.ended_at))).where(
            col(InteractionRow.agent) == self.agent, *waiting()
        )
        with self._journal.read() as session:
            n_ready, oldest = session.connection().execute(query).one()
            return int(n_ready), oldest

    def load(self, ids: Sequence[str], *, with_right: bool = False) -> list[Ready]:
        """The turns in the order of `ids`. Right replies come only `with_right`, for objectives that learn from
        them."""
        ready = []
        with self._journal.read() as session:
            evidence = evidence_of_all(session, ids)
            spent = self._spent(session)
            rewards = {name: compose(each).reward for name, each in evidence.items()}
            is_hinted = any(reward is not None and reward.hint for reward in rewards.values())
            quorum = quorum_of(session, self.agent, self._hint_quorum) if is_hinted else None
            for interaction_id in ids:
                row = session.get(InteractionRow, interaction_id)
                reward, unbacked = _guarded(rewards[interaction_id], quorum)
                right = right_of(session, interaction_id) if with_right else None
                if row is not None:
                    n_earlier = spent[who_of(row.tenant, row.key_id, row.user)]
                    turn = interaction_of(session, row)
                    ready.append(Ready(turn, row.session_id, reward, right, n_earlier, unbacked))
        return ready

    def discard(self, skip_reasons: Mapping[str, str]) -> None:
        """Discard turns that can never be trained, each with its reason."""
        with self._journal.write() as session:
            for interaction_id, skip_reason in skip_reasons.items():
                session.connection().execute(
                    update(InteractionRow)
                    .where(
                        col(InteractionRow.interaction_id) == interaction_id, col(InteractionRow.spent_step).is_(None)
                    )
                    .values(skip_reason=skip_reason)
                )

    def set_aside(self, ids: Sequence[str]) -> None:
        """Set aside turns that carry no signal so far. They come back when more feedback on them arrives."""
        with self._journal.write() as session:
            session.connection().execute(
                update(InteractionRow).where(col(InteractionRow.interaction_id).in_(list(ids))).values(is_ready=False)
            )

    def open(self, parent: int, rows: Sequence[Ready], *, attempt: int = 1, groups: Sequence[Group] = ()) -> OpenStep:
        """Begin a step: allocate the next version number and record the rows with their rewards and the groups with
        their scores. Raises Postponed if one of the turns was erased or kept out
        of training meanwhile.
        """
        names = {row.interaction.interaction_id for row in rows} | {group.interaction_id for group in groups}
        with self._journal.write() as session:
            mine = (col(InteractionRow.interaction_id).in_(names), col(InteractionRow.may_train).is_(True))
            there = set(session.scalars(select(col(InteractionRow.interaction_id)).where(*mine)))
            if n_gone := len(names) - len(there):
                raise Postponed(f"{n_gone} of {len(names)} turns were erased or kept out while they were chosen")
            step = StepRow(
                agent=self.agent,
                version=next_number(session, self.agent),
                parent=parent,
                attempt=attempt,
                outcome=StepOutcome.OPEN,
                metrics={},
                started_at=time.time(),
            )
            session.add(step)
            session.flush()
            assert step.step_id is not None
            for row in rows:
                session.add(
                    SampleRow(
                        step_id=step.step_id,
                        interaction_id=row.interaction.interaction_id,
                        reward=row.reward.value if row.reward else None,
                        reward_source=row.reward.source if row.reward else None,
                        record_ids=_record_ids(row),
                        hint=row.unbacked or (row.reward.hint if row.reward else None),
                        hint_status=UNBACKED if row.unbacked else None,
                        n_earlier=row.n_earlier,
                    )
                )
            record_choice(session, step, groups)
            return OpenStep(step.step_id, step.version, parent, attempt)

    def announce(
        self,
        step: OpenStep,
        digest: str,
        report: StepReport = NOTHING,
    ) -> None:
        """The step's version is in the store: record what became of its rows, and put it up for trial.

        Raises LearnerError if the step was given up meanwhile: this learner was presumed dead, and its rows belong to
        another.
        """
        with self._journal.write() as session:
            row = session.get_one(StepRow, step.step_id, with_for_update=True)
            if row.outcome != StepOutcome.OPEN:
                raise LearnerError(f"the step of v{step.version} is {row.outcome}: another learner took over its rows")
            _write(session, row, report)
            session.flush()
            data = contributions.of_step(session, self.agent, step.step_id)
            made = (session, self.agent, step.version)
            lifecycle.announce(*made, parent=step.parent, step_id=step.step_id, digest=digest, data=data)

    def close(
        self,
        step: OpenStep,
        outcome: StepOutcome,
        reason: str,
        report: StepReport = NOTHING,
    ) -> None:
        """The step ended without a version for a reason that is no failure. Its rows are spent."""
        with self._journal.write() as session:
            _write(session, session.get_one(StepRow, step.step_id), report)
            lifecycle.close_step(session, step.step_id, outcome, reason)

    def pause(self, *, is_paused: bool = True) -> None:
        """Pause learning until this is called with False. Serving, recording and judging continue."""
        with self._journal.write() as session:
            session.get_one(AgentRow, self.agent).is_paused = is_paused

    def fail(self, step: OpenStep, reason: str, report: StepReport = NOTHING) -> StepOutcome:
        """The step did not produce a version. Its rows come again; those for which it was the last try are spent."""
        with self._journal.write() as session:
            row = session.get_one(StepRow, step.step_id, with_for_update=True)
            if session.get(VersionRow, (self.agent, step.version)) is not None:
                return StepOutcome(row.outcome)  # announced at this moment: its trial decides
            _write(session, row, report)
            return lifecycle.give_back(session, step.step_id, StepOutcome.FAILED, reason)

    def withdraw(self, step: OpenStep, reason: str) -> StepOutcome:
        """The step was broken off for no fault of its rows. They come again, and this try does not count."""
        with self._journal.write() as session:
            return lifecycle.withdraw(session, step.step_id, reason)

    def interrupted(self) -> OpenStep | None:
        """A step that is open although no version of it was announced: its learner died."""
        announced = select(col(VersionRow.version)).where(col(VersionRow.agent) == self.agent)
        query = select(StepRow).where(
            col(StepRow.agent) == self.agent,
            col(StepRow.outcome) == StepOutcome.OPEN,
            col(StepRow.version).not_in(announced),
        )
        with self._journal.read() as session:
            row = session.scalars(query).first()
            if row is None or row.step_id is None:
                return None
            return OpenStep(row.step_id, row.version, row.parent, row.attempt)

    def attempts_of(self, ids: Sequence[str]) -> int:
        """How many superseded steps these rows have been in."""
        query = (
            select(func.count(func.distinct(col(StepRow.step_id))))
            .join(SampleRow, col(SampleRow.step_id) == col(StepRow.step_id))
            .where(col(SampleRow.interaction_id).in_(list(ids)), col(StepRow.outcome) == StepOutcome.SUPERSEDED)
        )
        with self._journal.read() as session:
            return int(session.connection().execute(query).scalar_one())

    def _spent(self, session: Session) -> Mapping[Who, int]:
        """How many turns of each voice this agent's steps have spent. Each step is counted once and remembered, because
        what is spent stays spent.
        """
        ended = select(col(StepRow.step_id)).where(
            col(StepRow.agent) == self.agent, col(StepRow.outcome) != StepOutcome.OPEN
        )
        new = {step_id for step_id in session.scalars(ended) if step_id is not None} - self._counted
        who = (col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))
        for start in range(0, len(new), AT_ONCE):
            some = sorted(new)[start : start + AT_ONCE]
            query = (
                select(*who, func.count())
                .join(SampleRow, col(SampleRow.interaction_id) == col(InteractionRow.interaction_id))
                .where(col(SampleRow.step_id).in_(some), col(InteractionRow.spent_step) == col(SampleRow.step_id))
                .group_by(*who)
            )
            for tenant, key, user, n in session.connection().execute(query):
                self._spent_of[who_of(tenant, key, user)] += int(n)
            self._counted.update(some)
        return self._spent_of


def right_of(session: Session, interaction_id: str) -> Right | None:
    """The user's right reply to the turn. A demonstration takes precedence over a correction."""
    row = right_reply_of(session, interaction_id)
    if row is None:
        return None
    kind = RightKind.DEMONSTRATION if row.demonstration else RightKind.CORRECTION
    return Right(row.demonstration or row.correction or "", kind, row.feedback_id)


def _guarded(reward: Reward | None, quorum: Quorum | None) -> tuple[Reward | None, str | None]:
    """The reward with the backed part of its hint, and the hint itself if nothing of it is backed."""
    if reward is None or not reward.hint or quorum is None:
        return reward, None
    hint = quorum.backed(reward.hint)
    if hint is None:
        return replace(reward, hint=None, candidates=()), reward.hint
    candidates = tuple(kept for each in reward.candidates if (kept := quorum.backed(each)) is not None)
    return replace(reward, hint=hint, candidates=candidates), None


def _record_ids(row: Ready) -> list[str]:
    given = [*(row.reward.record_ids if row.reward else ()), *([row.right.record_id] if row.right else ())]
    return list(dict.fromkeys(given))


def _write(session: Session, step: StepRow, report: StepReport) -> None:
    """Write a step report into the rows of its step, unless the step was given up, for example for an erasure."""
    if step.outcome != StepOutcome.OPEN:
        return
    step.metrics, step.level = dict(report.metrics), report.level
    step.monitors = {name: dict(reading) for name, reading in report.monitors.items()}
    skipped = {**dict.fromkeys(report.idle, "no advantage and no hint"), **report.dropped}
    columns: dict[str, Mapping[str, Any]] = {
        "skipped": skipped,
        "hint_status": report.refusals,
        "hint": report.hints,
        "weight": report.weights,
        "logprob_change": report.logprob_changes,
    }
    for name, values in columns.items():
        for interaction_id, value in values.items():
            setattr(session.get_one(SampleRow, (step.step_id, interaction_id)), name, value)
    record_outcomes(session, step, report.ungrouped, report.group_weights)
