"""Power failures: what a client has seen with `journal.fsync` on is there afterwards.

strace records every write, flush, rename and removal of a real gateway and a real ingester, and what the gateway sends
to its clients. Each failure is a moment of that record. The files are made as a power failure may leave them
(benchmarks/chaos/disk.py), the ingester runs on them, and `sqlite3` alone says which replies are in the journal. Times
that are hours otherwise are seconds here, so that segments are left, filed and removed meanwhile.
"""

import bisect
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx

from benchmarks.bars import Tell
from benchmarks.chaos.disk import CALLS, Disk, Event, Kind, events
from benchmarks.ingest.idle import stub
from burnish.adapters.serving.prepare import prepare
from burnish.cli import main as burnish
from burnish.config import Engine, Gateway, Settings, to_environment
from burnish.config import Journal as JournalSettings
from burnish.journal import Journal
from burnish.segments import file as segment_file
from burnish.server.ingest import segment_folder
from burnish.server.ingest.ingester import SETTLE_SECONDS, Ingester
from tests.e2e.whole import free_port, until

PARTS = ("gateway", "ingester")
CLIENTS = 4
N_TURNS, N_FAILURES = 800, 1002
SHARES = (0.0, 0.5, 1.0)
"""How much of what was not flushed is there after a failure."""
SEGMENT_SECONDS = 0.5
"""Seconds for which a segment is written to here, and for which it stays."""
_ID = re.compile(rb"x-request-id: ([\w-]+)")
_END = re.compile(rb"data: \[DONE\]")


def measure(
    folder: Path, seed: int, tell: Tell, n_turns: int = N_TURNS, n_failures: int = N_FAILURES
) -> dict[str, float]:
    """Record `n_turns` replies, then fail `n_failures` times."""
    if shutil.which("strace") is None:
        sys.exit("power failures need strace; install it with `apt install strace`")
    state = folder / "state"
    tell(f"power: recording {n_turns} replies")
    first = _record(folder, state, n_turns)
    found = sorted((each for part in PARTS for each in _events(folder / f"{part}.strace")), key=lambda each: each.at)
    seen = _seen(found, str(state))
    changes = [each for each in found if each.path.startswith(str(state))]
    disk = Disk(str(state), first)
    moments = _moments(changes, seen, n_failures)
    kinds = [each.kind for each in changes]
    rng, lost, damaged, done = random.Random(seed), set[str](), 0, 0
    for number, moment in enumerate(moments):
        for change in changes[done:moment]:
            disk.take(change)
        done = moment
        if number % 50 == 0:
            tell(f"power: failure {number + 1} of {len(moments)}; {len(lost)} replies lost")
        until_then = changes[moment - 1].at
        wanted = {name for name, at in seen.items() if at < until_then}
        after = folder / "after"
        shutil.rmtree(after, ignore_errors=True)
        disk.leave(after, rng, SHARES[number % len(SHARES)])
        filed, is_sound = _filed(after)
        for name in sorted(wanted - filed - lost)[:3]:
            print(f"lost at {until_then:.6f} (seen at {seen[name]:.6f}): {name}", file=sys.stderr)
        lost |= wanted - filed
        damaged += not is_sound
    n_removed = sum(each.kind is Kind.UNLINK and each.path.endswith(".seg") for each in changes)
    return {
        "power_failures": len(moments),
        "power_lost": len(lost),
        "power_damaged": damaged,
        "power_turns": len(seen),
        "power_changes": len(changes),
        "power_flushes": kinds.count(Kind.FLUSH),
        "power_segments_removed": n_removed,
    }


def _record(folder: Path, state: Path, n_turns: int) -> Path:
    """Let gateway and ingester answer under strace. Returns the state as it was before they began."""
    folder.mkdir(parents=True, exist_ok=True)
    with stub() as engine:
        settings = Settings(
            state_dir=state,
            journal=JournalSettings(fsync=True, session_timeout=4 * SEGMENT_SECONDS),
            engine=Engine(urls=(engine,)),
            gateway=Gateway(port=free_port()),
        )
        prepare(settings).close()
        first = folder / "first"
        shutil.copytree(state, first)
        with _running(folder, settings):
            url = f"http://127.0.0.1:{settings.gateway.port}"
            until(lambda: _answers(url), f"the gateway (its log is in {folder})", 60)
            with ThreadPoolExecutor(CLIENTS) as pool:
                share = n_turns // CLIENTS
                list(pool.map(lambda number: _talk(url, number, share), range(CLIENTS)))
            time.sleep(4 * SEGMENT_SECONDS)  # the last segments go
    return first


@contextmanager
def _running(folder: Path, settings: Settings) -> Iterator[None]:
    started = []
    try:
        for part in PARTS:
            traced = ["strace", "-f", "-ttt", "-y", "-xx", "-s", "10000000", "-e", f"trace={','.join(CALLS)}"]
            command = [*traced, "-o", str(folder / f"{part}.strace"), sys.executable, "-m", __name__, part]
            environment = {**os.environ, **to_environment(settings)}
            with (folder / f"{part}.log").open("wb") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        yield
    finally:
        for process in started:  # strace passes on no signal, so its child gets it
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGTERM)
        for process in started:
            process.wait(60)


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/healthz", timeout=2).status_code == 200
    return False


def _talk(url: str, client: int, n_turns: int) -> None:
    """One client's conversation. Every second reply is streamed."""
    messages: list[dict[str, str]] = []
    with httpx.Client(base_url=url, timeout=60.0) as http:
        for number in range(n_turns):
            messages = [*messages[-6:], {"role": "user", "content": f"client {client}, question {number}"}]
            body = {"model": "agent", "messages": messages, "stream": number % 2 == 1}
            http.post("/v1/chat/completions", json=body).raise_for_status()
            messages.append({"role": "assistant", "content": "hello"})


def _events(log: Path) -> list[Event]:
    with log.open(encoding="ascii") as lines:
        return list(events(lines))


def _seen(found: Sequence[Event], state: str) -> Mapping[str, float]:
    """When the gateway began to send the last byte of each reply, by request id: from then on a client may know it."""
    seen: dict[str, float] = {}
    asked: dict[str, str] = {}
    for event in found:
        if event.kind is not Kind.WRITE or event.path.startswith(state) or not event.path.startswith("socket:"):
            continue
        if event.data.startswith(b"HTTP/1.1 200") and (named := _ID.search(event.data)) is not None:
            name = asked[event.path] = named[1].decode()
            if b"content-length" in event.data and b"x-burnish-version" in event.data:
                seen[name] = event.began
        if event.path in asked and _END.search(event.data):
            seen.setdefault(asked[event.path], event.began)
    return seen


def _moments(changes: Sequence[Event], seen: Mapping[str, float], n: int) -> list[int]:
    """`n` numbers of changes after which the power fails: evenly spread, and as often right after a reply was seen."""
    times = [each.at for each in changes]
    behind = sorted({bisect.bisect_right(times, at) for at in seen.values()} - {0})
    even = range(1, len(changes) + 1)
    return sorted(_spread(behind, n // 2) + _spread(even, n - n // 2))


def _spread(numbers: Sequence[int], n: int) -> list[int]:
    return [numbers[at * len(numbers) // n] for at in range(n)]


def _filed(state: Path) -> tuple[set[str], bool]:
    """The requests that are in the journal once an ingester has run, and whether SQLite finds its file sound."""
    settings = Settings(state_dir=state)
    journal = Journal.at(settings.journal_url)
    try:
        time.sleep(SETTLE_SECONDS)
        ingester = Ingester.of(settings, journal)
        while ingester.run_once():
            pass
    finally:
        journal.close()
    with closing(sqlite3.connect(state / "journal.db")) as line:
        is_sound = line.execute("PRAGMA quick_check").fetchone() == ("ok",)
        return {name for (name,) in line.execute("SELECT request_id FROM interaction")}, is_sound


if __name__ == "__main__":
    segment_file.MAX_AGE = SEGMENT_SECONDS
    segment_folder.GRACE = SEGMENT_SECONDS
    sys.argv[1:1] = ["run"]
    burnish()
