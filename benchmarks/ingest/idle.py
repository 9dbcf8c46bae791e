"""What all parts together take while nothing happens: the CPU time of a real `burnish up`, by part.

A stub stands in for the engine, in a process that is not counted. Before the measurement a few conversations are
recorded and filed, so that the journal is not empty.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.bars import Tell
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.summary import summary
from tests.e2e.whole import Whole, free_port, until

SETTLE_SECONDS = 40.0
"""Seconds after the last turn. The parts have done what turns make them do, and what they do once after a start."""
N_TURNS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(folder: Path, seconds: float, tell: Tell, settings: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Shares of a core in `seconds` seconds: all parts together, and each."""
    folder.mkdir()
    with stub() as url:
        whole = Whole(folder / "state", {"engine.urls": [url], "gateway.ui_port": free_port(), **(settings or {})})
        whole.start()
        try:
            whole.wait_ready()
            until(lambda: "learner ready" in (folder / "up.log").read_text(), "the learner to be ready")
            for n in range(N_TURNS):
                if whole.chat(f"Copy {n} 17.")[0] != 200:
                    sys.exit("the gateway does not answer")
            until(lambda: _n_filed(whole) >= N_TURNS, "the turns to be filed")
            tell("idle: settling")
            time.sleep(SETTLE_SECONDS)
            tell(f"idle: measuring for {seconds:.0f} s")
            before, started = _spent(whole), time.monotonic()
            time.sleep(seconds)
            after, took = _spent(whole), time.monotonic() - started
        finally:
            whole.stop()
    if before.keys() != after.keys():
        sys.exit(f"parts ended or began: {sorted(before.keys() ^ after.keys())}; see {folder / 'up.log'}")
    parts = sorted({part for part, _ in after})
    shares = {name: sum(after[key] - before[key] for key in after if key[0] == name) / took for name in parts}
    return {"idle_share": sum(shares.values()), **{f"idle_{part}": share for part, share in shares.items()}}


@contextmanager
def stub(*options: str) -> Iterator[str]:
    """A stub engine in a process of its own. Gives its URL."""
    command = [sys.executable, "-m", "burnish.testing", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def _n_filed(whole: Whole) -> int:
    journal = Journal.at(Settings(state_dir=whole.state, journal=_journal_of(whole)).journal_url)
    with journal.read() as session:
        n = int(summary(session, "agent")["interactions"])
    journal.close()
    return n


def _journal_of(whole: Whole) -> Any:
    return {"url": whole.settings.get("journal.url", "")}


def _spent(whole: Whole) -> dict[tuple[str, int], float]:
    """CPU seconds of each of its processes so far, by part and process id."""
    assert whole.process is not None
    known = processes.stats()
    family = processes.family(whole.process.pid, known)
    return {(processes.part_of(pid), pid): sum(map(int, known[pid][11:15])) / _TICKS for pid in family}
