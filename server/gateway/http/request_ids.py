"""Request ids: the time, so that the journal's indexes grow at their end, and 80 random bits that nobody can guess."""

import os
import time

_SIZE = 10
_PAGE = 4000


class RequestIds:
    """One per process. The system is asked for the random bits of many ids at a time."""

    def __init__(self) -> None:
        self._page = b""
        self._at = 0

    def take(self) -> str:
        """The next id, 32 hexadecimal digits: 12 for the milliseconds since 1970, the rest at random."""
        if self._at >= len(self._page):
            self._page, self._at = os.urandom(_PAGE), 0
        start = self._at
        self._at = start + _SIZE
        return f"{int(time.time() * 1000):012x}{self._page[start : self._at].hex()}"
