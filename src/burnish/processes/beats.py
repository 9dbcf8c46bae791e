"""Whether a part that answers no requests goes on: its loops touch a file, and the supervisor sees whether they do.

A part whose work has long pieces (the learner's) also counts as going on while it uses a processor.
"""

import os
import time
from pathlib import Path

FOLDER = "beats"
INTERVAL = 1.0
"""Seconds at least between two beats."""
WORK = 1.0
"""Seconds of CPU time that show that a part goes on."""
_TICKS = os.sysconf("SC_CLK_TCK")


def beat_of(run_dir: Path, pid: int) -> Path:
    """The file that the process `pid` touches."""
    return run_dir / FOLDER / str(pid)


class Beat:
    """Touches this process's file, at most once in `INTERVAL` seconds. A disk error is no matter."""

    def __init__(self, run_dir: Path) -> None:
        self._path = beat_of(run_dir, os.getpid())
        self._next = 0.0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        except OSError:
            return

    def __call__(self) -> None:
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + INTERVAL
        try:
            os.utime(self._path)
        except OSError:
            return


class Pulse:
    """The supervisor's view of one process's beats. `silence` is the time in seconds after which it counts as hung,
    whatever the clock of the machine says. With `counts_work`, CPU time is a beat too.
    """

    def __init__(self, run_dir: Path, pid: int, silence: float, *, counts_work: bool = False) -> None:
        self._path = beat_of(run_dir, pid)
        self._pid = pid
        self._silence = silence
        self._counts_work = counts_work
        self._seen: int | None = None
        self._worked = 0.0
        self._until = 0.0

    def goes_on(self) -> bool:
        """True if it has beaten within `silence`. False before its first beat."""
        now = time.monotonic()
        try:
            beaten = self._path.stat().st_mtime_ns
        except OSError:
            beaten = self._seen or 0
        worked = _cpu_seconds(self._pid) if self._counts_work else 0.0
        if (beaten and beaten != self._seen) or worked >= self._worked + WORK:
            self._seen, self._worked, self._until = beaten or self._seen, worked, now + self._silence
        return self._seen is not None and now < self._until

    def forget(self) -> None:
        """The process has ended."""
        self._path.unlink(missing_ok=True)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
