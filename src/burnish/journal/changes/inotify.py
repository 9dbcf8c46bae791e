"""Linux tells of changes in a folder (inotify), so that nobody has to look again and again.

A hint, no more: it may come too early, and on some file systems (a network's) it never comes.
"""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MODIFY, _CREATE, _MOVED_TO = 0x2, 0x100, 0x80
_READ = 65_536


class FolderWatch:
    """Readable as soon as a file directly in `folder` was written, made or renamed. Raises OSError if the system has no
    such thing.
    """

    def __init__(self, folder: Path) -> None:
        if not hasattr(_LIBC, "inotify_init1"):
            raise OSError("this system has no inotify")
        self._handle = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            mask = _MODIFY | _CREATE | _MOVED_TO
            _checked(_LIBC.inotify_add_watch(self._handle, os.fsencode(folder), mask))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._handle

    def drain(self) -> None:
        """Forget what was told so far."""
        with suppress(BlockingIOError):
            while os.read(self._handle, _READ):
                pass

    def wait(self, seconds: float) -> bool:
        """True as soon as something has changed, False after `seconds`."""
        is_told = bool(select.select([self._handle], [], [], seconds)[0])
        self.drain()
        return is_told

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _checked(found: int) -> int:
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
