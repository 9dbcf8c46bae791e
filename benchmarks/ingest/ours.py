"""The ingester as deployed: its real process on one core, watched from outside through the segments' offsets."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select
from sqlmodel import col

from benchmarks.gateway.servers import GATEWAY_CORE, Server
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings, to_environment
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, SegmentRow

LOOK_SECONDS = 0.05
PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Filed:
    """Turns a second of time, and CPU time for each turn."""

    turns_per_s: float
    us_per_turn: float


def measure(settings: Settings, n_turns: int) -> Filed:
    """File the segments of `settings`, which hold `n_turns` records that the journal does not have yet.

    The first transactions, in which a process warms up, do not count.
    """
    journal = prepare(settings)
    n_bytes = sum(path.stat().st_size for path in settings.segments_dir.glob("*.seg"))
    before = _n_turns(journal)
    started = _n_read(journal)
    with ingester(settings) as process:
        first = _wait(journal, process, started + (n_bytes - started) // 10)
        last = _wait(journal, process, n_bytes)
    found = _n_turns(journal) - before
    journal.close()
    if found != n_turns:
        sys.exit(f"expected {n_turns} new turns in the journal, got {found}")
    share = (last.n_bytes - first.n_bytes) / (n_bytes - started)
    n_counted = share * n_turns
    return Filed(n_counted / (last.at - first.at), (last.cpu - first.cpu) / n_counted * 1e6)


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    cpu: float
    n_bytes: int


def _wait(journal: Journal, process: Server, n_bytes: int) -> _Look:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if (n_read := _n_read(journal)) >= n_bytes:
            return _Look(time.perf_counter(), process.cpu_seconds, n_read)
        time.sleep(LOOK_SECONDS)
    sys.exit(f"the ingester has read {_n_read(journal)} of {n_bytes} bytes after {PATIENCE:.0f} s")


def wait_until_filed(settings: Settings) -> None:
    """Wait until the running ingester has filed what there is: until a second brings no further turn."""
    journal = Journal.at(settings.journal_url)
    n_turns = -1
    while (found := _n_turns(journal)) != n_turns:
        n_turns = found
        time.sleep(1.0)
    journal.close()


def _n_read(journal: Journal) -> int:
    with journal.read() as session:
        return int(session.scalar(select(func.sum(col(SegmentRow.offset)))) or 0)


def _n_turns(journal: Journal) -> int:
    with journal.read() as session:
        return int(session.scalar(select(func.count()).select_from(InteractionRow)) or 0)


@contextmanager
def ingester(settings: Settings) -> Iterator[Server]:
    log = Path(settings.state_dir) / "ingester.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "burnish", "run", "ingester"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **to_environment(settings)},
        )
    os.sched_setaffinity(process.pid, {GATEWAY_CORE % (os.cpu_count() or 1)})
    try:
        yield Server("ingester", 0, process.pid)
    finally:
        process.terminate()
        process.wait(30)
