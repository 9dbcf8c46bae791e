"""The observer of canaries and watches: counts settled turns, decides, and acts. Part of the swapper's loop.

An observation keeps all its state in its row, so a restart continues it. A decision and its consequences are one
transaction.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import update
from sqlmodel import Session, col

from burnish import config
from burnish.adapters.evidence import observation
from burnish.adapters.evidence.comparison import Comparison, Decision, Rules, decide_canary, decide_watch
from burnish.adapters.evidence.observation import Beginning
from burnish.adapters.evidence.settled_turns import Cursor, Settled, settled
from burnish.adapters.registry import agents, auto_rollback, canaries, lifecycle
from burnish.adapters.serving import publish
from burnish.errors import Conflict
from burnish.journal import Journal
from burnish.journal.tables import CanaryRow
from burnish.journal.turns import turns_with_reward
from burnish.records import TRIALS, CanaryState, Observation, VersionName
from burnish.server.rollout.canary.mirrored_pairs import Mirrored, mirrored
from burnish.server.rollout.notices.alerts import Alerts

log = structlog.get_logger(__name__)
HOUR = 3600.0
REST = 3.0
"""The next look waits this many times as long as the last one took, because swapping shares the loop."""
LATE_ROWS = 3600.0
"""Seconds after a version was stopped in which its turns may still arrive."""
WHY = {
    Observation.CANARY: auto_rollback.REFUSED,
    Observation.WATCH: auto_rollback.ROLLED_BACK,
    Observation.SHADOW: auto_rollback.REFUSED,
}


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
        rules: Rules = Rules(),  # noqa: B008
    ) -> None:
        self._journal = journal
        self._file = file
        self._settings_of = settings_of
        self._alerts = alerts
        self._interval = interval
        self._rules = rules
        self._next = 0.0
        self.is_behind = False

    def left_out(self, agent: str) -> str | None:
        """Why a version of `agent` that passed the gate goes live without a canary. None if it needs one first.

        In the tier `auto` the traffic decides: a canary that cannot be decided within a day only delays learning.
        """
        settings = self._settings_of(agent)
        if settings.has_canary is not None:
            return None if settings.has_canary else "canary: the settings want none"
        needed = math.ceil(self._rules.baseline_turns / settings.canary.share)
        with self._journal.read() as session:
            n = turns_with_reward(session, agent, time.time() - 24 * HOUR, needed)
        return f"canary: {n} rated turns in the last day, {needed} needed" if n < needed else None

    def canary_beside(self, agent: str, baseline: int) -> Beginning:
        """A canary (or a shadow canary, by the settings) beside `baseline`, to be begun in the caller's transaction."""
        chosen = self._settings_of(agent).canary
        if chosen.mode == "shadow":
            return self._begin(agent, baseline, Observation.SHADOW, self._rules.shadow_share)
        return self.canary_by_hand(agent, baseline, None)

    def canary_by_hand(self, agent: str, baseline: int, share: float | None) -> Beginning:
        """A canary beside `baseline`, with `canary.share` unless a share is given."""
        return observation.canary(self._journal, self._settings_of(agent), agent, baseline, share, self._rules)

    def watch_beside(self, agent: str, baseline: int) -> Beginning | None:
        """A watch over the successor of `baseline`, to be begun in the promoting transaction. None if the settings say
        no.
        """
        chosen = self._settings_of(agent).canary
        return self._begin(agent, baseline, Observation.WATCH, chosen.holdback) if chosen.watch else None

    def look(self) -> int:
        """Look at everything that runs, at most once in `interval` seconds. Returns how many observations were
        decided. `is_behind` says whether it was too soon.
        """
        begun = time.monotonic()
        self.is_behind = begun < self._next
        if self.is_behind:
            return 0
        with self._journal.read() as session:
            # the others have their own deciders
            rows = [row for row in canaries.running(session) if "comparison" in row.evidence]
            undone = canaries.stopped(session, time.time() - LATE_ROWS)
        n_decided = sum(self._look_at(row) for row in rows)
        for row in undone:
            self._drop_late_rows(row)
        took = time.monotonic() - begun
        self._next = begun + max(self._interval, REST * took if self._interval else 0.0)
        return n_decided

    def _look_at(self, row: CanaryRow) -> bool:
        rules, now = self._rules_of(row.agent), time.time()
        seen = Comparison.of(rules, row.evidence["comparison"])  # type: ignore[arg-type]
        cursor = Cursor(**row.evidence["cursor"])  # type: ignore[arg-type]
        with self._journal.read() as session:
            held = agents.find(session, row.agent).held
            found = self._found(session, row, cursor, rules.patience, now)
        hours = (now - row.started_at) / HOUR
        decision = _decide(row, seen, hours)
        for each in found:
            if isinstance(each, Mirrored):
                seen.add_mirrored(each.user, each.outcome, each.baseline, each.version)
            elif each.version == row.version and each.ended_at <= row.started_at:
                continue  # for its canary; the evidence that let it pass is outdated
            else:
                seen.add(each.version == row.version, each.user, observation.shown(each.turn, row.share))
            decision = _decide(row, seen, hours)
            if decision.state in (CanaryState.STOPPED, CanaryState.PASSED) and not held:
                break
        is_promotion = row.kind in TRIALS and decision.state in (CanaryState.PASSED, CanaryState.SKIPPED)
        is_final = decision.state is not CanaryState.RUNNING and not (is_promotion and held)
        if found or is_final:
            row.evidence = observation.evidence_of(seen, cursor)
            self._save(row)
        return is_final and self._act(row, decision, rules)

    @staticmethod
    def _found(
        session: Session, row: CanaryRow, cursor: Cursor, patience: float, now: float
    ) -> Sequence[Settled | Mirrored]:
        if row.kind == Observation.SHADOW:
            return mirrored(session, row, cursor, now)
        return settled(session, row.agent, (row.version, row.baseline), cursor, patience=patience, now=now)

    def _act(self, row: CanaryRow, decision: Decision, rules: Rules) -> bool:
        try:
            if decision.state is CanaryState.STOPPED:
                self._stop(row, decision.reason, rules)
            elif row.kind in TRIALS:
                self._end_canary(row, decision)
            else:
                with self._journal.write() as session:
                    canaries.end(session, row, decision.state, decision.reason, actor="watch")
                publish.sync(self._journal, self._file, row.agent)
                log.info("a watch ended", version=_name(row), reason=decision.reason)
        except Conflict as error:  # an operator was faster: the alias change has ended what ran
            log.warning("a decision came too late", version=_name(row), error=str(error))
            return False
        return True

    def _stop(self, row: CanaryRow, reason: str, rules: Rules) -> None:
        if row.kind in TRIALS:
            with self._journal.write() as session:
                auto_rollback.refuse_canary(session, row, reason, actor="canary")
            publish.sync(self._journal, self._file, row.agent)
            self._alerts.send(
                f"{row.kind} stopped", agent=row.agent, version=row.version, beside=row.baseline, reason=reason
            )
            return
        done: dict[str, Any] = {}

        def back(session: Session) -> None:
            done.update(auto_rollback.roll_back(session, row, reason, max_rollbacks=rules.max_rollbacks))

        try:
            publish.move(self._journal, self._file, row.agent, row.baseline, back)
        except (
            publish.NotLoaded
        ):  # the swapper's next look at the engines loads it; nobody gets the worse one meanwhile
            with self._journal.write() as session:
                back(session)
            publish.sync(self._journal, self._file, row.agent, also_loaded=row.baseline)
        self._alerts.send("rolled back", **done)

    def _end_canary(self, row: CanaryRow, decision: Decision) -> None:
        name = VersionName(row.agent, row.version)
        watch = self.watch_beside(row.agent, row.baseline)

        def act(session: Session) -> None:
            if not canaries.end(session, row, decision.state, decision.reason, actor="canary"):
                raise Conflict(f"the canary of {name} has ended already")
            version = lifecycle.version(session, row.agent, row.version)
            evidence = {**version.evidence, "canary": {"state": decision.state, "reason": decision.reason}}
            lifecycle.promote(
                session,
                row.agent,
                row.version,
                expected=row.baseline,
                actor="canary",
                reason=f"{row.kind} {decision.state}: {decision.reason}",
                evidence=evidence,
            )
            if watch is not None:
                watch.of(session, name, "canary")

        publish.move(self._journal, self._file, row.agent, row.version, act)
        log.info("promoted after its canary", version=str(name), canary=str(decision.state), reason=decision.reason)

    def _begin(self, agent: str, baseline: int, kind: Observation, share: float) -> Beginning:
        return observation.ready(self._journal, self._rules_of(agent), agent, baseline, kind, share)

    def _rules_of(self, agent: str) -> Rules:
        return observation.rules_of(self._settings_of(agent), self._rules)

    def _drop_late_rows(self, row: CanaryRow) -> None:
        """Turns that were running when their version was stopped, or that were filed later."""
        since = (row.ended_at or 0.0) - self._rules.patience
        with self._journal.read() as session:
            is_needed = auto_rollback.has_rows(session, row.agent, row.version, since)
        if is_needed:
            with self._journal.write() as session:
                auto_rollback.drop_rows(session, row.agent, row.version, WHY[Observation(row.kind)])

    def _save(self, row: CanaryRow) -> None:
        still = (col(CanaryRow.canary_id) == row.canary_id, col(CanaryRow.state) == CanaryState.RUNNING)
        with self._journal.write() as session:
            session.connection().execute(update(CanaryRow).where(*still).values(evidence=row.evidence))


def _decide(row: CanaryRow, seen: Comparison, hours: float) -> Decision:
    return decide_watch(seen) if row.kind == Observation.WATCH else decide_canary(seen, hours)


def _name(row: CanaryRow) -> str:
    return str(VersionName(row.agent, row.version))
