"""Settings by agent: the server's, with the agent's own from the registry on top."""

import time
from collections.abc import Callable

import structlog

from burnish.config import Settings
from burnish.config.overrides import laid_over
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.journal.tables import AgentRow

KEEP_SECONDS = 5.0
log = structlog.get_logger(__name__)


def settings_by_agent(settings: Settings, journal: Journal) -> Callable[[str], Settings]:
    """A function from an agent's name to its settings, read every few seconds. Unfit settings fall back to the
    server's.
    """
    kept: dict[str, tuple[float, Settings]] = {}

    def of(agent: str) -> Settings:
        until, found = kept.get(agent, (0.0, settings))
        if time.monotonic() > until:
            with journal.read() as session:
                row = session.get(AgentRow, agent)
                own = dict(row.settings or {}) if row is not None else {}
            try:
                found = laid_over(settings, own) if own else settings
            except BurnishError as error:
                log.error("an agent's own settings do not fit; the server's are used", agent=agent, error=str(error))
                found = settings
            kept[agent] = (time.monotonic() + KEEP_SECONDS, found)
        return found

    return of
