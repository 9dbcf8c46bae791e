"""The scheduler: every agent's learner in one process, one step each in turn. Agents with the same adapter form share
one base model.

A personal agent is visited only while it has rows to learn from, because there may be very many and most are idle.
An agent whose step breaks (its settings may ask for more memory than there is) rests, and the others go on.
"""

import math
import threading
import time
from collections.abc import Callable

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from burnish.config import Settings
from burnish.config.overrides import laid_over
from burnish.errors import BurnishError, ConfigError, JournalUnavailable
from burnish.journal import Journal
from burnish.journal.changes import Rest
from burnish.journal.outage import Outage, is_outage
from burnish.journal.tables import AgentRow, InteractionRow
from burnish.journal.turns import waiting
from burnish.learner.run.loop import LEASE_SECONDS, Loop
from burnish.logs import told

LOOK_SECONDS = 2.0
REST_SECONDS = 600.0
"""For so long an agent is left out whose loop broke, unless its settings change."""
log = structlog.get_logger()


class Scheduler:
    """One per learner process. `make` returns the loop of an agent with its own settings."""

    def __init__(self, settings: Settings, journal: Journal, make: Callable[[Settings, str], Loop]) -> None:
        self._settings = settings
        self._journal = journal
        self._make = make
        self._loops: dict[str, Loop] = {}
        self._overlays: dict[str, dict[str, object]] = {}
        self._resting: dict[str, tuple[float, dict[str, object]]] = {}
        self._n_broken = 0  # since the last step that any agent took
        self._at_work: Loop | None = None
        self._next_look = 0.0

    def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.05) -> None:
        """Step whenever an agent has something to learn, until `is_stopping()`."""
        ended = threading.Event()
        keeper = threading.Thread(target=self._keep_lease, args=(ended,), daemon=True)
        keeper.start()
        try:
            outage, rest = Outage(), Rest(self._journal.changes)
            while not is_stopping():
                rest.begin()
                try:
                    has_stepped = self.run_once(is_stopping)
                except (SQLAlchemyError, JournalUnavailable, OSError) as error:
                    if not is_outage(error):
                        raise
                    if self._at_work is not None:
                        self._at_work.break_off()
                        self._at_work = None
                    time.sleep(outage.pause(error))
                    continue
                outage.over()
                if not has_stepped:
                    time.sleep(interval)
                    rest.wait(
                        is_stopping, interval, min([loop.due_at for loop in self._loops.values()], default=math.inf)
                    )
        finally:
            ended.set()
            keeper.join()

    def run_once(self, is_stopping: Callable[[], bool] = lambda: False) -> bool:
        """Let every agent take at most one step. True if one did. Raises what broke if no agent's step goes well."""
        if time.monotonic() >= self._next_look:
            self._look()
            self._next_look = time.monotonic() + LOOK_SECONDS
        has_stepped = False
        for name, loop in list(self._loops.items()):
            if is_stopping():
                break
            self._at_work = loop
            try:
                if loop.run_once():
                    has_stepped, self._n_broken = True, 0
            except Exception as error:
                if is_outage(error):
                    raise  # not the agent's fault
                self._n_broken += 1
                if self._n_broken >= len(self._loops):  # the device's fault, perhaps: a new process may cure it
                    raise
                self._let_rest(name, error)
        self._at_work = None
        return has_stepped

    def _let_rest(self, name: str, error: Exception) -> None:
        log.exception("an agent's step broke; it rests, and the others go on", agent=name, error=told(error))
        self._resting[name] = (time.monotonic() + REST_SECONDS, self._overlays.get(name, {}))
        self._loops.pop(name).release_lease()
        self._overlays.pop(name, None)

    def look_again(self) -> None:
        """Visit the agents in the next round, however recent their last visit was."""
        self._next_look = 0.0

    def _look(self) -> None:
        """Take in new agents and new settings. An agent with unusable settings is reported once and left out."""
        with self._journal.read() as session:
            has_rows = (
                select(InteractionRow).where(col(InteractionRow.agent) == col(AgentRow.name), *waiting()).exists()
            )
            wanted = col(AgentRow.parent).is_(None) | has_rows
            found = {row.name: dict(row.settings or {}) for row in session.scalars(select(AgentRow).where(wanted))}
        now = time.monotonic()
        self._resting = {
            name: (until, overlay)
            for name, (until, overlay) in self._resting.items()
            if now < until and found.get(name) == overlay
        }
        found = {name: overlay for name, overlay in found.items() if name not in self._resting}
        for name in self._loops.keys() - found.keys():
            self._loops.pop(name).release_lease()
        for name in sorted(found, key=lambda name: (name != self._settings.agent.name, name)):
            if self._overlays.get(name) != found[name]:
                self._take_in(name, found[name])
        self._overlays = found

    def _take_in(self, name: str, overlay: dict[str, object]) -> None:
        if (earlier := self._loops.pop(name, None)) is not None:
            earlier.release_lease()
        try:
            settings = laid_over(self._settings, overlay)
            if settings.recipe.rank > settings.engine.max_lora_rank:
                raise ConfigError(
                    f"learner.rank is {settings.recipe.rank}, "
                    f"but the engine loads ranks up to {settings.engine.max_lora_rank}; "
                    "lower learner.rank, or raise engine.max_lora_rank"
                )
            if settings.learner.enabled:
                self._loops[name] = self._make(settings, name)
        except BurnishError as error:
            log.error("an agent is not trained", agent=name, error=told(error))
        except Exception as error:
            if is_outage(error) or not overlay:  # without an overlay they are the server's own settings
                raise
            log.exception("an agent is not trained", agent=name)

    def _keep_lease(self, ended: threading.Event) -> None:
        """Renew the lease while a long step runs. A learner that died loses it within `LEASE_SECONDS`."""
        while not ended.wait(LEASE_SECONDS / 4):
            loop = self._at_work
            try:
                if loop is not None:
                    loop.acquire_lease()
            except SQLAlchemyError as error:
                log.warning("cannot renew the lease", error=str(error))
