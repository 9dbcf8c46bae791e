"""Settled turns from the journal: their reward is known, or nothing more is waited for.

Each turn is returned once. `Cursor` remembers the place and is small enough to be stored with an observation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, TextClause, text
from sqlmodel import Session

from burnish.adapters.evidence.comparison import Turn
from burnish.adapters.evidence.turn_slices import slices_of
from burnish.journal.evidence import evidence_of
from burnish.journal.tables import FeedbackRow, NextStateRow
from burnish.journal.turns import feedback_of, rows_of, signal_of
from burnish.records import FeedbackSource, NextStateKind, Reward, Signal, SignalKind, TargetKind
from burnish.rewards import INTEGRATED, NOT_THE_AGENTS_FAULT, compose, environment_fault, value_of

LATE = 60.0
"""Seconds by which a turn's record may arrive after a later turn's, because each gateway process has its own
segments."""
_TURNS = (
    "SELECT interaction_id, version, key_id, {user}, started_at, ended_at, is_ready, spent_step, length(token_ids) "
    "FROM interaction "
    "WHERE agent = :agent AND kind != 'side' AND choice = 0 AND upstream IS NULL AND NOT is_aborted "
)


@dataclass(frozen=True, slots=True)
class Settled:
    """One turn with its user, its version and its metrics."""

    interaction_id: str
    version: int
    ended_at: float
    user: str
    turn: Turn


@dataclass(slots=True)
class Cursor:
    """`since`: turns that ended before are counted or given up. `seen`: later turns that are."""

    since: float
    seen: list[str]

    def move_on(self, times: Mapping[str, float], counted: Collection[str], horizon: float) -> None:
        """Move past the `counted` turns with `times`, but not past `horizon` if something there was not counted."""
        newest = max(times.values(), default=self.since)
        self.since = max(self.since, min(horizon, newest - LATE) - 1e-3)
        self.seen = [name for name, at in times.items() if name in counted and at > self.since]


def settled(
    session: Session,
    agent: str,
    versions: Sequence[int],
    cursor: Cursor,
    *,
    patience: float,
    now: float,
    most: int = 200,
) -> list[Settled]:
    """Turns of `versions` that were settled since the last call, in the order of their ends. Moves `cursor` on.

    A turn without a reward is returned `patience` seconds after its end. Turns beyond the first `most` are left for the
    next call.
    """
    query = _select(session, "AND ended_at > :since AND version IN (:first, :second) ORDER BY ended_at")
    values = {"agent": agent, "since": cursor.since, "first": versions[0], "second": versions[-1]}
    seen = set(cursor.seen)
    rows: list[Row[*tuple[Any, ...]]] = []
    horizon, ends = now, {}
    for row in session.connection().execute(query, values):
        name, ended_at = str(row[0]), float(row[5])
        ends[name] = ended_at
        if name in seen:
            continue
        if len(rows) < most and (row[6] or row[7] is not None or ended_at < now - patience):
            rows.append(row)
            seen.add(name)
        else:
            horizon = min(horizon, ended_at)
    cursor.move_on(ends, seen, horizon)
    return _all_settled(session, rows)


def latest(session: Session, agent: str, version: int, n: int, before: float) -> list[Settled]:
    """The last `n` judged turns of a version that ended before that time, oldest first."""
    query = _select(
        session,
        "AND ended_at <= :before AND version = :version AND (is_ready OR spent_step IS NOT NULL) ORDER BY ended_at "
        "DESC LIMIT :n",
    )
    values = {"agent": agent, "before": before, "version": version, "n": n}
    rows = session.connection().execute(query, values).all()
    return _all_settled(session, list(reversed(rows)))


def _select(session: Session, where: str) -> TextClause:
    quoted = session.get_bind().dialect.identifier_preparer.quote("user")  # a reserved word on PostgreSQL
    return text(_TURNS.format(user=quoted) + where)


def _all_settled(session: Session, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[Settled]:
    slices = slices_of(session, [str(row[0]) for row in rows])
    return [_settled(session, row, slices.get(str(row[0]), ())) for row in rows]


def _settled(session: Session, row: Row[*tuple[Any, ...]], slices: tuple[str, ...]) -> Settled:
    name = str(row[0])
    reward = _reward(session, name)
    is_good = None if reward is None or reward.value == 0 else reward.value > 0
    shown = Turn(
        reward=is_good,
        feedback=_rated(session, name),
        tools=_tools(session, name),
        length=float(row[8] // 4),
        latency=max(0.0, float(row[5]) - float(row[4])),
        name=name,
        slices=slices,
    )
    return Settled(name, int(row[1]), float(row[5]), str(row[3] or row[2]), shown)


def _reward(session: Session, name: str) -> Reward | None:
    """A turn's own reward. A session's outcome counts only with the turn that it was filed with.

    The learner gives the outcome to every turn of the session. Here it would be one observation counted many times, and
    a test that is fed so finds effects that do not exist.
    """
    evidence = evidence_of(session, name)
    reward = compose(evidence).reward
    if reward is None or reward.source != INTEGRATED:
        return reward
    filed = {row.feedback_id for row in rows_of(session, FeedbackRow, name)}
    return reward if filed.intersection(reward.record_ids) else compose(replace(evidence, on_session=())).reward


def _rated(session: Session, name: str) -> bool | None:
    """A user's last explicit word on the reply. None if there is none or it is neutral."""
    said = [feedback_of(row) for row in rows_of(session, FeedbackRow, name)]
    values = [
        value
        for f in said
        if f.source is FeedbackSource.USER and not f.is_deleted and f.about is not TargetKind.SESSION
        if (value := value_of(f)) is not None
    ]
    return values[-1] > 0 if values and values[-1] != 0 else None


def _tools(session: Session, name: str) -> bool | None:
    """True if the reply's tool calls were free of errors. None if it called no tool or no reply could have helped."""
    came = next(iter(rows_of(session, NextStateRow, name)), None)
    if came is None or came.kind != NextStateKind.TOOL_RESULT:
        return None
    signals = [signal_of(tree) for tree in came.signals]
    return None if environment_fault(signals) else not any(_is_error(signal) for signal in signals)


def _is_error(signal: Signal) -> bool:
    if signal.kind is SignalKind.HTTP_STATUS:
        return 400 <= signal.value < 500 and signal.value not in NOT_THE_AGENTS_FAULT
    if signal.kind is SignalKind.TESTS:
        return signal.value < 1.0
    return signal.kind is SignalKind.EXIT_CODE and signal.value != 0.0
