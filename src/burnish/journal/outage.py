"""How a part waits for a database that does not answer: longer each time, in its own process, and with a log line.

Its process goes on, because a new one would be no nearer to the database and would have to load its model again.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from burnish.errors import JournalUnavailable
from burnish.journal.changes import Changes, Rest

log = structlog.get_logger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
OVER = 60.0
"""Seconds without an error after which the next one counts as the first."""


class Outage:
    """The pauses of one loop."""

    def __init__(self) -> None:
        self._n = 0
        self._last = 0.0

    def pause(self, error: Exception) -> float:
        """How long to wait after `error`, in seconds."""
        now = time.monotonic()
        self._n = self._n + 1 if now - self._last < OVER else 1
        self._last = now
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._n - 1))
        log.warning("the journal does not answer; it is tried again", seconds=seconds, error=_short(error))
        return seconds


async def repeat(
    run_once: Callable[[], Awaitable[object]],
    is_stopping: Callable[[], bool],
    interval: float,
    *,
    changes: Changes | None = None,
    due: Callable[[], float] = lambda: math.inf,
) -> None:
    """Call `run_once` until `is_stopping()`, with a pause of `interval` seconds after each time that it did nothing.

    With `changes`, it then rests on: until the journal changes, or `due()` says that work has come by the clock
    (seconds since the epoch).
    """
    outage, rest = Outage(), Rest(changes) if changes is not None else None
    while not is_stopping():
        if rest is not None:
            rest.begin()
        try:
            if await run_once():
                continue
        except (SQLAlchemyError, JournalUnavailable) as error:
            await asyncio.sleep(outage.pause(error))
            continue
        if interval:
            await asyncio.sleep(interval)
        if rest is not None:
            await rest.wait_async(is_stopping, interval, due)


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip()[:300]
