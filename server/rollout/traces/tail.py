"""The tail of the journal that sends traces, beside the swapper. Nothing waits for it.

Its place in the journal moves on only when the receiver has taken everything before it, and is kept in a file. So a
restart repeats little and misses nothing. Spans that fail are tried again with growing pauses. After an hour the tail
goes on without them, so that one that the receiver will never take does not hold up the rest.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from burnish.config import Settings
from burnish.config.tracing import tracing
from burnish.errors import BurnishError
from burnish.files import UNREADABLE, read_json, replace_text
from burnish.journal import Journal
from burnish.journal.outage import repeat
from burnish.logs import told
from burnish.segments.lag import lag
from burnish.server.rollout.traces.reading import Found, Look
from burnish.server.rollout.traces.sender import Sender, sender_of
from burnish.server.rollout.traces.told import Told

INTERVAL = 2.0
MARGIN = 10.0
"""Seconds from the end of a turn until it is told, if its record is not late. Clocks may differ by as much."""
OLDEST = 86_400.0
"""Age in seconds beyond which nothing is told."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
KEEP_EVERY = 60.0
"""Seconds after which the place is kept although nothing was told."""
PATIENCE = 3600.0
"""Seconds after which spans that do not arrive are left out."""
log = structlog.get_logger(__name__)


class TraceTail:
    """One per serving host. Without a `sender` it does nothing."""

    def __init__(
        self, journal: Journal, settings: Settings, sender: Sender | None, *, has_content: bool = False
    ) -> None:
        self._journal = journal
        self._segments = settings.segments_dir
        self._sender = sender
        self._has_content = has_content
        self._file = settings.run_dir / "traces.json"
        self._told = _read(self._file) if sender is not None else None
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._keep_at = 0.0
        self._failed_at: float | None = None

    @classmethod
    def of(cls, journal: Journal, settings: Settings) -> "TraceTail":
        """The tail that the environment asks for."""
        wanted = tracing()
        if wanted is None:
            return cls(journal, settings, None)
        return cls(journal, settings, sender_of(wanted), has_content=wanted.has_content)

    async def run_forever(self, is_stopping: Callable[[], bool]) -> None:
        """Look and send until `is_stopping()`."""
        if self._sender is not None:
            await repeat(self._once, is_stopping, INTERVAL, changes=self._journal.changes)

    async def _once(self) -> bool:
        """`run_once`, whose mistakes are logged: traces must not end the process that swaps versions."""
        try:
            return await self.run_once()
        except (BurnishError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("traces cannot be made; it is tried again", error=told(error))
            return False

    async def run_once(self) -> bool:
        """Tell what is new. True if there is more."""
        if self._sender is None or time.monotonic() < self._not_before:
            return False
        found = await asyncio.to_thread(self._look, self._sender)
        has_arrived = not found.spans or await asyncio.to_thread(self._sender.send, found.spans)
        if not has_arrived and not self._gives_up(len(found.spans)):
            return False
        self._told = found.told
        if has_arrived:
            self._failed_at, self._pause = None, FIRST_PAUSE
        if found.spans or time.monotonic() >= self._keep_at:
            self._keep(found.told)
        return found.is_more and has_arrived

    def close(self) -> None:
        """Give up what is being sent. It is sent again after the next start."""
        if self._sender is not None:
            self._sender.close()

    def _look(self, sender: Sender) -> Found:
        now = time.time()
        with self._journal.read() as session:
            told = self._told or Told.until(session, now)
            horizon = now - max(MARGIN, lag(session, self._segments, now))
            told = told.but_not_before(now - OLDEST)
            return Look(session, told, horizon, sender.is_sampled, has_content=self._has_content).take()

    def _gives_up(self, n_spans: int) -> bool:
        """Pause after a failure. True if it has lasted so long that the spans are left out."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        self._not_before = now + self._pause
        if now - self._failed_at > PATIENCE:
            log.error("spans are left out: the receiver of traces did not take them", n=n_spans)
            self._failed_at = None
            return True
        log.warning("traces cannot be sent; it is tried again", seconds=self._pause, n=n_spans)
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return False

    def _keep(self, told: Told) -> None:
        self._keep_at = time.monotonic() + KEEP_EVERY
        try:
            replace_text(self._file, json.dumps(told.written()), is_durable=False)
        except OSError as error:
            log.warning("what was traced cannot be kept", path=str(self._file), error=str(error))


def _read(file: Path) -> Told | None:
    try:
        tree = read_json(file)
        return None if tree is None else Told.read(tree)
    except (*UNREADABLE, IndexError) as error:
        log.warning("what was traced cannot be read; it begins anew", path=str(file), error=repr(error))
        return None
