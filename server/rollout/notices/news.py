"""News: what the audit log and the alarms say since the last look. Each becomes one notice.

The place in the audit log and the alarms that were told are kept in a file, so that a restart neither repeats nor
misses anything. At the very first look, nothing old is told. The observer itself tells of the versions that it stops
(server/rollout/canary/observer.py). Personal agents are left out: there may be thousands.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from sqlalchemy import func, select
from sqlmodel import Session, col

from burnish.adapters.registry import auto_rollback
from burnish.adapters.registry.learning_state import learning_state
from burnish.config import Settings
from burnish.errors import BurnishError
from burnish.files import UNREADABLE, low_disk, read_json, replace_text
from burnish.journal import Journal, judge_checks
from burnish.journal.outage import repeat
from burnish.journal.tables import AgentRow, AuditRow
from burnish.logs import told
from burnish.records import Fitness
from burnish.server.rollout.notices.alerts import Alerts
from burnish.server.rollout.notices.templates import DISK, LIVE, REFUSED, ROLLED_BACK, STARVED, UNFIT

log = structlog.get_logger(__name__)
INTERVAL = 5.0
ALARM_SECONDS = 60.0
"""Seconds between two looks at the alarms."""
MOST = 200
"""Entries of the audit log that one look takes, and agents whose learning it looks at."""
OBSERVER = (auto_rollback.ACTOR, "canary")


class News:
    """One per serving host. `settings_of` gives the settings of an agent."""

    def __init__(
        self, journal: Journal, settings: Settings, settings_of: Callable[[str], Settings], alerts: Alerts
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._settings_of = settings_of
        self._alerts = alerts
        self._file = settings.run_dir / "news.json"
        self._state = _read(self._file)
        self._next_alarms = 0.0

    async def run_forever(self, is_stopping: Callable[[], bool]) -> None:
        """Look until `is_stopping()`. Nothing is looked at without a webhook."""
        if not self._settings.alerts.webhook:
            return
        self._alerts.resume()
        await repeat(self._once, is_stopping, INTERVAL, changes=self._journal.changes)

    async def _once(self) -> bool:
        """`run_once`, whose mistakes are logged: news must not end the process that swaps versions."""
        try:
            return await self.run_once()
        except (BurnishError, OSError, ValueError, KeyError, TypeError) as error:
            log.warning("news cannot be gathered; it is tried again", error=told(error))
            return False

    async def run_once(self) -> bool:
        """Tell what is new. True if there may be more."""
        before = self._state
        found = await asyncio.to_thread(self._look)
        for notice in found.notices:
            self._alerts.send(notice.event, notice_id=notice.notice_id, **notice.facts)
        self._state = found.state
        if found.state != before:
            try:
                replace_text(self._file, json.dumps(found.state), is_durable=False)
            except OSError as error:
                log.warning("what was told cannot be kept", path=str(self._file), error=str(error))
        return len(found.notices) >= MOST

    def _look(self) -> "_Found":
        with self._journal.read() as session:
            last = int(session.connection().execute(select(func.max(col(AuditRow.audit_id)))).scalar_one() or 0)
            place, told = self._state["audit_id"], list(self._state["alarms"])
            if place is None or place > last:  # the first look, or another journal
                place = last
            wanted = select(AuditRow).where(col(AuditRow.audit_id) > place).order_by(col(AuditRow.audit_id))
            rows = session.scalars(wanted.limit(MOST)).all()
            personal = self._personal(session, {row.agent for row in rows if row.agent})
            notices = [notice for row in rows if row.agent not in personal and (notice := _of_audit(row)) is not None]
            place = rows[-1].audit_id if rows else place
            if time.monotonic() >= self._next_alarms:
                self._next_alarms = time.monotonic() + ALARM_SECONDS
                alarms = {alarm.notice_id: alarm for alarm in self._alarms(session)}
                at = int(time.time())
                notices += [
                    alarm._replace(notice_id=f"{name}-{at}") for name, alarm in alarms.items() if name not in told
                ]
                told = sorted(alarms)
        return _Found(notices, {"audit_id": place, "alarms": told})

    @staticmethod
    def _personal(session: Session, names: set[str]) -> set[str]:
        wanted = select(col(AgentRow.name)).where(col(AgentRow.name).in_(names), col(AgentRow.parent).is_not(None))
        return set(session.connection().execute(wanted).scalars())

    def _alarms(self, session: Session) -> "Iterator[_Notice]":
        """The alarms that stand now."""
        wanted = select(AgentRow).where(col(AgentRow.parent).is_(None)).order_by(col(AgentRow.created_at))
        for row in session.scalars(wanted.limit(MOST)):
            found = learning_state(session, self._settings_of(row.name), row.name)
            if found.is_alarm:
                yield _Notice(STARVED, f"starved-{row.name}", {"agent": row.name, "reason": found.sentence})
        latest = sorted(judge_checks.filed(session).values(), key=lambda row: row.checked_at or 0.0)
        for judge in {row.model: row for row in latest}.values():
            if judge.state == Fitness.UNFIT:
                yield _Notice(UNFIT, f"unfit-{judge.model}", {"judge": judge.model, "reason": judge.reason})
        if (free := low_disk(self._settings.state_dir)) is not None:
            yield _Notice(DISK, "disk", {"free_gb": round(free, 2)})


class _Notice(NamedTuple):
    event: str
    notice_id: str
    facts: dict[str, Any]


class _Found(NamedTuple):
    notices: list[_Notice]
    state: dict[str, Any]


def _of_audit(row: AuditRow) -> _Notice | None:
    """The notice of an entry. None if people need none, or if the observer sends its own."""
    if row.actor in OBSERVER and (row.actor == auto_rollback.ACTOR or row.action == "refuse"):
        return None
    facts: dict[str, Any] = {"agent": row.agent, "by": row.actor, "reason": row.reason}
    if row.action == "promote" and row.before is not None and row.after is not None:
        event = ROLLED_BACK if int(row.after) < int(row.before) else LIVE
        facts |= {"from": int(row.before), "to": int(row.after)}
    elif row.action == "refuse":
        event = REFUSED
        facts |= {"version": int(row.object.rpartition("@v")[2])}
    else:
        return None
    return _Notice(event, f"audit-{row.audit_id}", facts)


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = read_json(file)
        if tree is not None:
            return {"audit_id": int(tree["audit_id"]), "alarms": [str(name) for name in tree["alarms"]]}
    except UNREADABLE as error:
        log.warning("what was told cannot be read; it begins anew", path=str(file), error=repr(error))
    return {"audit_id": None, "alarms": []}
