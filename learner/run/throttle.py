"""Throttle: the learner works less while serving slows down.

Each engine counts the gaps between tokens that it has served (`vllm:inter_token_latency_seconds`). Their mean while
nothing is trained is the quiet mean. If the mean during a step is more than `limit` times the quiet mean, the learner
works a smaller share of the time: multiplicative decrease, additive increase, as in TCP (Chiu and Jain, 1989). The
share never falls below `MIN_SHARE`, so learning slows down but does not stop.
"""

import os
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import structlog

log = structlog.get_logger()
IDLE = 20
MIN_SHARE = 0.1
DECREASE, INCREASE = 0.7, 0.05
FORGET = 0.1
"""Weight of a new quiet mean against the earlier ones."""
MIN_GAPS = 20
"""Gaps needed in one sample. With fewer, the sample is ignored."""
LONGEST_PAUSE = 2.0
INTERVAL = 0.5
"""Seconds between two samples."""
IDLE_FACTOR = 10
"""How much longer that is while nothing is trained and almost nothing is served."""
_WANTED = urllib.parse.urlencode([("name[]", f"vllm:inter_token_latency_seconds_{kind}") for kind in ("sum", "count")])
_GAPS = re.compile(r"^vllm:inter_token_latency_seconds_(sum|count)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


def lower_priority(nice: int = IDLE) -> None:
    """Lower this process's CPU priority by this much niceness. At 20, Linux runs it only on an idle CPU
    (SCHED_IDLE)."""
    if nice >= IDLE and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(min(nice, 19))


class TokenGaps(NamedTuple):
    """Sum of the seconds between tokens, and the number of gaps, since the engine started."""

    seconds: float
    n: float


class WorkShare:
    """Pure: from samples of serving to the share of the time that the learner may work, in [MIN_SHARE, 1]. A `limit` of
    0 means always 1.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.share = 1.0
        self.quiet: float | None = None
        self._last: TokenGaps | None = None
        self._was_working = False

    def look(self, gaps: TokenGaps, *, is_working: bool) -> None:
        """Take in the engines' counters. `is_working`: the learner is within a step now. A sample across a step's edge
        is ignored.
        """
        last, self._last = self._last, gaps
        was_working, self._was_working = self._was_working, is_working
        if last is None or gaps.n < last.n or was_working != is_working:
            return
        n = gaps.n - last.n
        if n < MIN_GAPS:  # almost no traffic to disturb
            self.share = min(1.0, self.share + INCREASE)
            return
        mean = (gaps.seconds - last.seconds) / n
        if not is_working:
            self.quiet = mean if self.quiet is None else (1 - FORGET) * self.quiet + FORGET * mean
        elif self.limit and self.quiet is not None and mean > self.limit * self.quiet:
            self.share = max(MIN_SHARE, self.share * DECREASE)
        else:
            self.share = min(1.0, self.share + INCREASE)

    def pause(self, worked: float) -> float:
        """Seconds to rest after `worked` seconds of work."""
        return min(LONGEST_PAUSE, worked * (1.0 / self.share - 1.0))


class Throttle:
    """Samples the engines at intervals, in its own thread, and rests between the pieces of a step as `WorkShare`
    says. Without a limit nothing is sampled.
    """

    def __init__(self, work_share: WorkShare, read: Callable[[], TokenGaps | None], interval: float = INTERVAL) -> None:
        self.work_share = work_share
        self._read = read
        self._interval = interval
        self._is_working = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Throttle":
        if self.work_share.limit:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._is_working.set()
        if self.work_share.limit:
            self._thread.join()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Marks the duration of one step."""
        self._is_working.set()
        try:
            yield
        finally:
            self._is_working.clear()

    def rest(self, worked: float) -> None:
        """Call between pieces of work with the seconds that the last one took."""
        if (seconds := self.work_share.pause(worked)) > 0.001:
            time.sleep(seconds)

    def _watch(self) -> None:
        was_slow, n, is_served = False, 0.0, True
        while not self._is_over.is_set():
            if is_served or self._is_working.is_set():
                self._is_over.wait(self._interval)
            else:
                self._is_working.wait(IDLE_FACTOR * self._interval)
            if self._is_over.is_set() or (gaps := self._read()) is None:
                continue
            is_served, n = abs(gaps.n - n) >= MIN_GAPS, gaps.n
            self.work_share.look(gaps, is_working=self._is_working.is_set())
            if (is_slow := self.work_share.share < 0.5) != was_slow:
                was_slow = is_slow
                log.info(
                    "serving is slow: learning slows down"
                    if is_slow
                    else "serving has recovered: learning at full speed"
                )


def token_gaps(urls: Sequence[str], key: str, timeout: float = 1.0) -> TokenGaps | None:
    """The counters of all engines at `urls`, added up. None if one does not answer or does not count."""
    seconds = count = 0.0
    for url in urls:
        # All of vLLM's metrics cost the process that writes the streams some ten milliseconds. These two cost almost
        # nothing.
        found = _counters(f"{url}/metrics/?{_WANTED}", key, timeout) or _counters(f"{url}/metrics", key, timeout)
        if not found:
            return None
        seconds += sum(float(value) for name, value in found if name == "sum")
        count += sum(float(value) for name, value in found if name == "count")
    return TokenGaps(seconds, count)


def _counters(url: str, key: str, timeout: float) -> list[tuple[str, str]]:
    """(sum or count, value) of each line about gaps. Empty if there is no such page."""
    try:
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
        with urllib.request.urlopen(asked, timeout=timeout) as response:
            return _GAPS.findall(response.read().decode())
    except (OSError, ValueError):  # urllib's own errors are OSErrors
        return []
