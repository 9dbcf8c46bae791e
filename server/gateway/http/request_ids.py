"""Request ids: 128 random bits that nobody can guess. The system is asked for many at a time."""

import os

_SIZE = 16
_PAGE = 4096


class RequestIds:
    """One per process."""

    def __init__(self) -> None:
        self._page = b""
        self._at = 0

    def take(self) -> str:
        """The next id, 32 hexadecimal digits."""
        if self._at >= len(self._page):
            self._page, self._at = os.urandom(_PAGE), 0
        start = self._at
        self._at = start + _SIZE
        return self._page[start : self._at].hex()
