"""Figures of the ingester, the judges, the learner and the gate, read from the journal when somebody asks.

Every query is bounded: it reads a small table, an index from one end, or at most `MOST` entries. So an answer takes as
long with a million turns as with a thousand. A personal agent counts as its parent.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.adapters.registry.agents import LIVE
from burnish.journal import judge_checks
from burnish.journal.tables import (
    AgentRow,
    AliasRow,
    AuditRow,
    CanaryRow,
    CompareJob,
    ErasureJob,
    InteractionRow,
    JobRow,
    JudgeJob,
    JudgementRow,
    LoadJob,
    ReplayJob,
    RubricJob,
    ShadowJob,
    StepRow,
    VersionRow,
)
from burnish.journal.turns import waiting
from burnish.records import CanaryState, Fitness, StepOutcome, VersionState
from burnish.server.gateway.metrics.counts import MAX_AGENTS, OTHER

MOST = 10_000
"""Entries that one query counts at most. A larger number shows as this one."""
WINDOW = 300.0
"""Seconds of verdicts and hints that are counted."""
QUEUES: tuple[type[JobRow], ...] = (JudgeJob, CompareJob, RubricJob, ShadowJob, ReplayJob, LoadJob, ErasureJob)
STATES = ("queued", "leased", "held", "dead")
HINTS = ("accepted", "refused")
PASSED = (VersionState.LIVE, VersionState.RETIRED, VersionState.ROLLED_BACK)
LEVELS = {"green": 0, "yellow": 1, "red": 2}
OF_STEP = {
    "step_kl": ("burnish_step_kl", "KL from the policy before, in nats a token, of the last step."),
    "loss": ("burnish_step_loss", "Loss of the last step."),
    "grad_norm": ("burnish_step_gradient_norm", "Norm of the last step's gradient."),
    "n_rows": ("burnish_step_rows", "Rows of the last step."),
}
_SCORES = {1: "good", 0: "neutral", -1: "bad", None: "abstained"}
_REFUSED_HINTS = (
    "few_votes",
    "length",
    "contradicts_score",
    "injection",
    "not_users_words",
    "leaks_answer",
    "not_general",
    "no_wish",
)
Family = GaugeMetricFamily | CounterMetricFamily


def families(session: Session) -> Iterator[Family]:
    """All figures as they are now."""
    now = time.time()
    yield from _queues(session, now)
    yield from _judging(session, now)
    rows = session.scalars(select(AgentRow).where(col(AgentRow.parent).is_(None)).order_by(col(AgentRow.created_at)))
    agents = list(rows.fetchmany(MAX_AGENTS))
    family = _Families(session, {row.name for row in agents})
    yield from _learning(session, agents)
    yield from _steps(session, family)
    yield from _versions(session, family)


class _Families:
    """The label of an agent: its parent's name, or its own."""

    def __init__(self, session: Session, shown: set[str]) -> None:
        pairs = select(col(AgentRow.name), col(AgentRow.parent)).where(col(AgentRow.parent).is_not(None))
        self._parents = {str(name): str(parent) for name, parent in session.connection().execute(pairs.limit(MOST))}
        self._shown = shown

    def of(self, agent: str) -> str:
        label = self._parents.get(agent, agent)
        return label if label in self._shown else OTHER

    def tally(self, session: Session, *columns: Any, where: tuple[Any, ...] = ()) -> Counter[tuple[str, str]]:
        """How many rows there are for each agent label and each value of the second column."""
        counted: Counter[tuple[str, str]] = Counter()
        wanted = select(*columns, func.count()).where(*where).group_by(*columns)
        for row in session.connection().execute(wanted):
            counted[self.of(str(row[0])), str(row[1])] += int(row[2])
        return counted


def _queues(session: Session, now: float) -> Iterator[Family]:
    jobs = GaugeMetricFamily("burnish_jobs", "Jobs by queue and state.", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "burnish_oldest_job_seconds", "Age of the oldest job that waits for a worker.", labels=("queue",)
    )
    for table in QUEUES:
        for state in STATES:
            some = select(col(table.created_at)).where(col(table.state) == state).limit(MOST).subquery()
            found = session.connection().execute(select(func.count(), func.min(some.c.created_at))).one()
            jobs.add_metric((table.queue, state), found[0])
            if state == "queued":
                oldest.add_metric((table.queue,), max(0.0, now - found[1]) if found[1] is not None else 0.0)
    yield from (jobs, oldest)


def _judging(session: Session, now: float) -> Iterator[Family]:
    verdicts: Counter[str] = Counter(dict.fromkeys(_SCORES.values(), 0))
    hints: Counter[str] = Counter(dict.fromkeys(HINTS, 0))
    status, made = col(JudgementRow.hint_status), col(JudgementRow.created_at)
    # one look for each status, because the index begins with it
    for kind, is_kind in (
        (None, status.is_(None)),
        ("accepted", status == "accepted"),
        ("refused", status.in_(_REFUSED_HINTS)),
    ):
        some = select(col(JudgementRow.score)).where(is_kind, made > now - WINDOW).limit(MOST).subquery()
        for score, number in session.connection().execute(select(some.c.score, func.count()).group_by(some.c.score)):
            verdicts[_SCORES.get(score, OTHER)] += number
            if kind is not None:
                hints[kind] += number
    yield _gauge("burnish_verdicts_recent", "Verdicts of the last 300 seconds.", "score", verdicts)
    yield _gauge("burnish_hints_recent", "Hints of the last 300 seconds.", "status", hints)
    fit: dict[str, float] = {}
    for row in sorted(judge_checks.filed(session).values(), key=lambda row: row.checked_at or 0.0):
        fit[row.model] = {Fitness.FIT: 1.0, Fitness.UNFIT: 0.0}.get(Fitness(row.state), float("nan"))
    yield _gauge("burnish_judge_fit", "1: the judge is fit, 0: unfit, NaN: not checked yet.", "judge", fit)


def _learning(session: Session, agents: list[AgentRow]) -> Iterator[Family]:
    ready: dict[str, float] = {}
    for row in agents:
        some = select(col(InteractionRow.ended_at)).where(col(InteractionRow.agent) == row.name, *waiting()).limit(MOST)
        wanted = select(func.count()).select_from(some.subquery())
        ready[row.name] = float(session.connection().execute(wanted).scalar_one())
    yield _gauge("burnish_ready_rows", "Rated replies that no step has used.", "agent", ready)
    yield _gauge("burnish_agent_paused", "1: learning is paused.", "agent", {row.name: row.is_paused for row in agents})
    held = {row.name: row.held is not None for row in agents}
    yield _gauge("burnish_agent_held", "1: nothing is promoted until an operator ends the hold.", "agent", held)


def _steps(session: Session, family: _Families) -> Iterator[Family]:
    outcomes = family.tally(session, col(StepRow.agent), col(StepRow.outcome))
    yield _counter("burnish_steps", "Training steps by outcome.", ("agent", "outcome"), outcomes)
    ended = col(StepRow.outcome) != StepOutcome.OPEN
    newest = select(func.max(col(StepRow.step_id))).where(ended).group_by(col(StepRow.agent))
    latest: dict[str, StepRow] = {}
    for row in session.scalars(select(StepRow).where(col(StepRow.step_id).in_(newest)).order_by(col(StepRow.step_id))):
        latest[family.of(row.agent)] = row
    for key, (name, text) in OF_STEP.items():
        found = {agent: row.metrics[key] for agent, row in latest.items() if key in row.metrics}
        yield _gauge(name, text, "agent", found)
    times = {agent: row.ended_at for agent, row in latest.items() if row.ended_at is not None}
    yield _gauge("burnish_step_ended_timestamp_seconds", "When the last step ended.", "agent", times)
    lasted = {agent: row.ended_at - row.started_at for agent, row in latest.items() if row.ended_at is not None}
    yield _gauge("burnish_step_seconds", "How long the last step took.", "agent", lasted)
    levels = GaugeMetricFamily(
        "burnish_monitor_level", "Monitors of the last step: 0 green, 1 yellow, 2 red.", labels=("agent", "monitor")
    )
    for agent, row in latest.items():
        for monitor, reading in row.monitors.items():
            if isinstance(reading, dict) and reading.get("level") in LEVELS:
                levels.add_metric((agent, monitor), LEVELS[reading["level"]])
    yield levels


def _versions(session: Session, family: _Families) -> Iterator[Family]:
    states = family.tally(session, col(VersionRow.agent), col(VersionRow.state))
    verdicts: Counter[tuple[str, str]] = Counter()
    waiting: Counter[str] = Counter()
    for (agent, state), number in states.items():
        if state in PASSED:
            verdicts[agent, "passed"] += number
        elif state == VersionState.REFUSED:
            verdicts[agent, "refused"] += number
        else:
            waiting[agent] += number
    yield _counter("burnish_gate_verdicts", "Versions that passed, or were refused.", ("agent", "verdict"), verdicts)
    yield _gauge("burnish_versions_undecided", "Versions on trial or on canary.", "agent", waiting)
    # A rollback is a promotion of an earlier version.
    moves: Counter[tuple[str, str]] = Counter()
    promotions = select(col(AuditRow.agent), col(AuditRow.before), col(AuditRow.after))
    for name, before, after in session.connection().execute(promotions.where(col(AuditRow.action) == "promote")):
        is_back = before is not None and after is not None and int(after) < int(before)
        moves[family.of(str(name)), "back" if is_back else "forward"] += 1
    yield _counter("burnish_swaps", "Changes of the live version, to a later or an earlier one.", _MOVED, moves)
    live = select(AliasRow).where(col(AliasRow.alias) == LIVE)
    shown = {row.agent: row.version for row in session.scalars(live) if family.of(row.agent) == row.agent}
    yield _gauge("burnish_live_version", "Number of the live version, 0 for the base.", "agent", shown)
    running = GaugeMetricFamily("burnish_observations", "Canaries, shadows and watches that run.", labels=("kind",))
    wanted = select(col(CanaryRow.kind), func.count()).where(col(CanaryRow.state) == CanaryState.RUNNING)
    for kind, number in session.connection().execute(wanted.group_by(col(CanaryRow.kind))):
        running.add_metric((str(kind),), number)
    yield running


_MOVED = ("agent", "direction")


def _gauge(name: str, text: str, label: str, values: Any) -> GaugeMetricFamily:
    made = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in values.items():
        made.add_metric((value,), float(number))
    return made


def _counter(name: str, text: str, labels: tuple[str, str], values: Counter[tuple[str, str]]) -> CounterMetricFamily:
    made = CounterMetricFamily(name, text, labels=labels)
    for pair, number in sorted(values.items()):
        made.add_metric(pair, number)
    return made
