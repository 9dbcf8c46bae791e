"""How a part waits for a database or a disk that does not answer: longer each time, in its own process, with a log
line.

Its process goes on, because a new one would be no nearer to them and would have to load its model again.
"""

import asyncio
import errno
import math
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from burnish.errors import JournalUnavailable
from burnish.journal.changes import Changes, Rest

log = structlog.get_logger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def is_outage(error: BaseException) -> bool:
    """True if the journal or the disk is at fault, and may answer later."""
    return isinstance(error, SQLAlchemyError | JournalUnavailable) or (
        isinstance(error, OSError) and error.errno in _OF_THE_DISK
    )


class Outage:
    """The pauses of one loop."""

    def __init__(self) -> None:
        self._n = 0

    def pause(self, error: Exception) -> float:
        """How long to wait after `error`, in seconds."""
        self._n += 1
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._n - 1))
        log.warning(f"{_what(error)}; it is tried again", seconds=seconds, error=_short(error))
        return seconds

    def over(self) -> None:
        """The work went well: the next error is the first one again."""
        self._n = 0


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
            has_worked = await run_once()
        except (SQLAlchemyError, JournalUnavailable, OSError) as error:
            if not is_outage(error):
                raise
            await asyncio.sleep(outage.pause(error))
            continue
        outage.over()
        if has_worked:
            continue
        if interval:
            await asyncio.sleep(interval)
        if rest is not None:
            await rest.wait_async(is_stopping, interval, due)


def _what(error: Exception) -> str:
    if not isinstance(error, OSError):
        return "the journal does not answer"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "no more files can be opened (raise the limit, see `ulimit -n`)"
    return "the disk takes nothing"


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip()[:300]
