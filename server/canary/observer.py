"""Looks at what runs: counts the turns that have been settled, decides, and acts. Part of the swapper's loop.

All that an observation knows is in its row: a restart goes on in the middle. A decision and what follows from it are one transaction.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import update
from sqlmodel import Session

from adapters import agents, canaries, registry, undo
from adapters.canary import Comparison, Decision, Rules, decide_canary, decide_watch
from burnish import config
from burnish.errors import Conflict
from burnish.journal import Journal
from burnish.journal.tables import CanaryRow
from burnish.records import CanaryState, Observation, VersionName
from server import table
from server.alerts import Alerts
from server.canary.settled import Cursor, Settled, latest, settled

log = structlog.get_logger(__name__)
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Beginning:
    """An observation that has been got ready, since reading the past takes longer than a transaction should."""

    kind: Observation
    baseline: int
    share: float
    evidence: dict[str, object]

    def of(self, session: Session, name: VersionName, actor: str) -> CanaryRow:
        """Begin it. Raises Conflict where another of the kind runs."""
        return canaries.begin(
            session,
            name.agent,
            name.version,
            self.baseline,
            self.kind,
            share=self.share,
            actor=actor,
            evidence=self.evidence,
        )


class Observer:
    """One per serving host. `settings_of` gives the settings of an agent."""

    def __init__(
        self,
        journal: Journal,
        file: Path,
        settings_of: Callable[[str], config.Settings],
        alerts: Alerts,
        *,
        interval: float = 1.0,
    ) -> None:
        self._journal = journal
        self._file = file
        self._settings_of = settings_of
        self._alerts = alerts
        self._interval = interval
        self._looked = -interval

    def wants_canary(self, agent: str) -> bool:
        """True where a version of `agent` that passed the gate has to answer a share of the traffic first."""
        return self._settings_of(agent).has_canary

    def canary_beside(self, agent: str, baseline: int, share: float | None = None) -> Beginning:
        """A canary beside `baseline`, to be begun in the caller's transaction."""
        chosen = self._settings_of(agent).canary
        needs_rate = chosen.test == "baseline"
        return self._begin(agent, baseline, Observation.CANARY, share or chosen.share, needs_rate=needs_rate)

    def watch_beside(self, agent: str, baseline: int) -> Beginning | None:
        """A watch over what replaces `baseline`, to be begun in the transaction that does; None where the settings say no."""
        chosen = self._settings_of(agent).canary
        needs_rate = chosen.test == "baseline" or (chosen.test == "auto" and not chosen.holdback)
        return self._begin(agent, baseline, Observation.WATCH, chosen.holdback, needs_rate=needs_rate) if chosen.watch else None

    def look(self) -> int:
        """Look at everything that runs, at most once in `interval` seconds; returns how many were decided."""
        if time.monotonic() - self._looked < self._interval:
            return 0
        self._looked = time.monotonic()
        with self._journal.read() as session:
            rows = list(canaries.running(session))
        return sum(self._look_at(row) for row in rows)

    def _look_at(self, row: CanaryRow) -> bool:
        settings = self._settings_of(row.agent).canary
        rules, now = _rules(settings), time.time()
        seen = Comparison.of(rules, row.evidence["comparison"])  # type: ignore[arg-type]
        cursor = Cursor(**row.evidence["cursor"])  # type: ignore[arg-type]
        with self._journal.read() as session:
            held = agents.find(session, row.agent).held
            arms = (row.version, row.baseline)
            found = settled(session, row.agent, arms, cursor, patience=settings.patience, now=now)
        for each in found:
            if each.version == row.version and each.ended_at <= row.started_at:
                continue  # of its canary: what let it pass is no evidence any more
            seen.add(each.version == row.version, each.user, each.turn)
        hours = (now - row.started_at) / HOUR
        decision = decide_watch(seen) if row.kind == Observation.WATCH else decide_canary(seen, hours)
        is_promotion = row.kind == Observation.CANARY and decision.state in (CanaryState.PASSED, CanaryState.SKIPPED)
        is_final = decision.state is not CanaryState.RUNNING and not (is_promotion and held)
        if found or is_final:
            row.evidence = _evidence(seen, cursor)
            self._save(row)
        return is_final and self._act(row, decision, settings)

    def _act(self, row: CanaryRow, decision: Decision, settings: config.Canary) -> bool:
        try:
            if decision.state is CanaryState.STOPPED:
                self._stop(row, decision.reason, settings)
            elif row.kind == Observation.CANARY:
                self._end_canary(row, decision, settings)
            else:
                with self._journal.write() as session:
                    canaries.end(session, row, decision.state, decision.reason, actor="watch")
                table.sync(self._journal, self._file, row.agent)
                log.info("a watch ended", version=_name(row), reason=decision.reason)
        except Conflict as error:  # an operator was faster: what ran has been ended with the alias
            log.warning("a decision came too late", version=_name(row), error=str(error))
            return False
        return True

    def _stop(self, row: CanaryRow, reason: str, settings: config.Canary) -> None:
        if row.kind == Observation.CANARY:
            with self._journal.write() as session:
                refuse(session, row, reason, actor="canary")
            table.sync(self._journal, self._file, row.agent)
            self._alerts.send("canary stopped", agent=row.agent, version=row.version, beside=row.baseline, reason=reason)
            return
        done: dict[str, Any] = {}

        def back(session: Session) -> None:
            done.update(
                undo.roll_back(session, row, reason, drop_rows=settings.drop_rows, max_rollbacks=settings.max_rollbacks)
            )

        try:
            table.move(self._journal, self._file, row.agent, row.baseline, back)
        except table.NotLoaded:  # the swapper's next look at the engines loads it; meanwhile nobody gets the worse one
            with self._journal.write() as session:
                back(session)
            table.sync(self._journal, self._file, row.agent, also_loaded=row.baseline)
        self._alerts.send("rolled back", **done)

    def _end_canary(self, row: CanaryRow, decision: Decision, settings: config.Canary) -> None:
        name = VersionName(row.agent, row.version)
        watch = self.watch_beside(row.agent, row.baseline)
        if decision.state is CanaryState.SKIPPED and settings.when_skipped == "refuse":
            with self._journal.write() as session:
                refuse(session, row, decision.reason, actor="canary", state=CanaryState.SKIPPED)
            table.sync(self._journal, self._file, row.agent)
            log.warning("a canary was skipped, its version refused", version=str(name), reason=decision.reason)
            return

        def act(session: Session) -> None:
            if not canaries.end(session, row, decision.state, decision.reason, actor="canary"):
                raise Conflict(f"the canary of {name} has ended already")
            version = registry.version(session, row.agent, row.version)
            evidence = {**version.evidence, "canary": {"state": decision.state, "reason": decision.reason}}
            registry.promote(
                session,
                row.agent,
                row.version,
                expected=row.baseline,
                actor="canary",
                reason=f"canary {decision.state}: {decision.reason}",
                evidence=evidence,
            )
            if watch is not None:
                watch.of(session, name, "canary")

        table.move(self._journal, self._file, row.agent, row.version, act)
        log.info("promoted after its canary", version=str(name), canary=str(decision.state), reason=decision.reason)

    def _begin(self, agent: str, baseline: int, kind: Observation, share: float, *, needs_rate: bool) -> Beginning:
        """A comparison from here on. Without turns of both at a time it begins with the baseline's latest."""
        settings, now = self._settings_of(agent).canary, time.time()
        past: list[Settled] = []
        if needs_rate or not share:
            with self._journal.read() as session:
                past = latest(session, agent, baseline, settings.baseline_turns, now)
        judged = [each.turn.reward for each in past if each.turn.reward is not None]
        is_known = needs_rate and len(judged) >= settings.baseline_turns
        seen, cursor = Comparison(_rules(settings), lower_rate(sum(judged), len(judged)) if is_known else None), Cursor(now, [])
        if not share:
            for each in past:
                seen.add(False, each.user, each.turn)
            # turns of the baseline that have ended and not been judged yet are still to come
            cursor = Cursor(now - settings.patience, [each.interaction_id for each in past])
        return Beginning(kind, baseline, share, _evidence(seen, cursor))

    def _save(self, row: CanaryRow) -> None:
        columns: Any = CanaryRow
        still = (columns.canary_id == row.canary_id, columns.state == CanaryState.RUNNING)
        with self._journal.write() as session:
            session.connection().execute(update(columns).where(*still).values(evidence=row.evidence))


def refuse(session: Session, row: CanaryRow, reason: str, *, actor: str, state: CanaryState = CanaryState.STOPPED) -> None:
    """End a canary and refuse its version, so that the learner starts from what is live. Raises Conflict where it has ended."""
    if not canaries.end(session, row, state, reason, actor=actor):
        raise Conflict(f"the canary of {_name(row)} has ended already")
    evidence = {**registry.version(session, row.agent, row.version).evidence, "canary": {"state": state, "reason": reason}}
    registry.refuse(session, row.agent, row.version, reason=f"canary: {reason}", evidence=evidence, actor=actor)


def lower_rate(n_good: int, n: int) -> float:
    """A rate that the true one is most likely above: the estimate less 1.64 standard errors (5 % one-sided), within [0.01, 0.99]."""
    rate = n_good / n
    return min(0.99, max(0.01, rate - 1.64 * sqrt(rate * (1 - rate) / n)))


def _rules(settings: config.Canary) -> Rules:
    return Rules(**{name: getattr(settings, name) for name in Rules.__dataclass_fields__})


def _evidence(seen: Comparison, cursor: Cursor) -> dict[str, object]:
    return {"comparison": seen.as_dict(), "cursor": {"since": cursor.since, "seen": cursor.seen}}


def _name(row: CanaryRow) -> str:
    return str(VersionName(row.agent, row.version))
