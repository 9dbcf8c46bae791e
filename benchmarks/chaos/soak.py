"""Hours of mixed load on a server that learns: does anything grow that should not?

The sandbox's model on a real vLLM. Clients talk, stream and rate, so steps and swaps follow each other. One client
breaks off its streams and sends what no server takes, one looks at the admin API. `journal.keep` bounds the database,
so that nothing on the disk may grow but the adapters: a refused version keeps its files for a week. Every half minute a
line of samples is written. A slope is the median of the slopes between all pairs of samples after the warm-up (Theil
and Sen), as a share of the median level, an hour. A soak can be broken off with Ctrl-C: its figures are those of the
time until then.
"""

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx

from benchmarks import processes
from benchmarks.bars import Tell
from benchmarks.chaos.learning import counted
from benchmarks.chaos.ledger import Clients, Ledger
from benchmarks.chaos.stand import begin, p95
from burnish.config import Settings
from tests.e2e.whole import Whole

SETTINGS = {"learner.recipe.anchor_rows": 4, "gateway.processes": 1, "journal.keep": {"gigabytes": 0.02}}
THINK = 4.0
"""Seconds between two requests of a client."""
EVERY = 30.0
"""Seconds between two samples."""
WARM_UP = 1 / 3
"""Share of the time that does not count: caches fill, and the journal reaches its bound."""
MIB = 2**20


def measure(folder: Path, hours: float, n_clients: int, tell: Tell) -> dict[str, float]:
    """Load a server for `hours`, or until Ctrl-C."""
    folder = begin(folder)
    whole, ledger = Whole(folder / "state", SETTINGS), Ledger(folder / "ledger.jsonl")
    settings = Settings(state_dir=whole.state)
    samples: list[dict[str, float]] = []
    whole.start()
    try:
        tell("soak: starting a server")
        whole.wait_ready()
        key = (whole.state / "admin.key").read_text(encoding="utf-8").strip()
        began = time.monotonic()
        with (
            suppress(KeyboardInterrupt),
            Clients(whole.url, ledger, n_clients, 10**7, think=THINK, key=key),
            _trouble(whole.url, key),
        ):
            while (passed := time.monotonic() - began) < hours * 3600.0:
                time.sleep(EVERY)
                samples.append(_sample(whole, ledger, passed / 3600.0))
                with (folder / "samples.jsonl").open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(samples[-1]) + "\n")
                now = samples[-1]
                tell(
                    f"soak: {now['hours']:.2f} of {hours:g} h, {ledger.n_whole} replies, {now['versions']:.0f} "
                    f"versions live so far, {now['memory']:.0f} MiB, {now['disk']:.0f} MiB on disk"
                )
        counts = counted(settings.state_dir / "journal.db")
    finally:
        whole.stop()
    failed = [each for each in ledger.seen if not each.is_whole]
    for each in failed[:10]:
        print(f"failed: {each}", file=sys.stderr)
    found = {f"soak_{name}": value for name, value in slopes(samples).items()}
    return {
        "soak_hours": samples[-1]["hours"] if samples else 0.0,
        "soak_turns": float(ledger.n_whole),
        "soak_failed": float(len(failed)),
        "soak_steps": samples[-1]["steps"] if samples else 0.0,
        "soak_versions_live": samples[-1]["versions"] if samples else 0.0,
        "soak_trained_now": float(counts["n_trained"]),
        **found,
    }


def slopes(samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """Percent an hour of memory, disk, descriptors and latency, of all and of each part that has them."""
    counted = [each for each in samples if each["hours"] >= WARM_UP * samples[-1]["hours"]]
    if len(counted) < 3:
        return {}
    names = [name for name in counted[0] if name not in ("hours", "steps", "versions")]
    return {f"{name}_slope": _slope([(each["hours"], each[name]) for each in counted]) for name in names}


def _slope(points: Sequence[tuple[float, float]]) -> float:
    level = statistics.median(value for _, value in points)
    between = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in combinations(points, 2)]
    return 100.0 * statistics.median(between) / level if level else 0.0


def _sample(whole: Whole, ledger: Ledger, hours: float) -> dict[str, float]:
    assert whole.process is not None
    memory: dict[str, float] = {}
    handles: dict[str, float] = {}
    for pid in processes.family(whole.process.pid, processes.stats()):
        with suppress(OSError):  # ended meanwhile
            part = processes.part_of(pid)
            memory[part] = memory.get(part, 0.0) + _pss(pid) / MIB
            handles[part] = handles.get(part, 0.0) + len(list(Path(f"/proc/{pid}/fd").iterdir()))
    disk = {name.name: _bytes(name) / MIB for name in whole.state.iterdir() if name.is_dir() or "journal" in name.name}
    recent = [each.ended - each.began for each in ledger.seen[-200:] if each.is_whole]
    counts = counted(whole.state / "journal.db")
    return {
        "hours": hours,
        "steps": float(counts["n_published"]),
        "versions": float(counts["n_live"]),
        "memory": sum(memory.values()),
        "descriptors": sum(handles.values()),
        "disk": sum(value for name, value in disk.items() if name != "adapters"),
        "disk_adapters": disk.get("adapters", 0.0),
        "latency": statistics.median(recent) if recent else 0.0,
        "latency_p95": p95(recent) if recent else 0.0,
        **{f"memory_{part}": value for part, value in sorted(memory.items())},
        **{f"descriptors_{part}": value for part, value in sorted(handles.items())},
    }


def _pss(pid: int) -> float:
    """Memory of a process, with its share of what it shares, in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1]) * 1024
    return 0.0


def _bytes(place: Path) -> float:
    """What a file or folder takes on the disk."""
    total = 0
    for file in [place, *(place.rglob("*") if place.is_dir() else ())]:
        with suppress(OSError):
            total += file.lstat().st_blocks * 512
    return float(total)


@contextmanager
def _trouble(url: str, key: str) -> Iterator[None]:
    """A client that breaks off its streams and sends what no server takes, and one that looks at the admin API."""
    is_over = threading.Event()

    def break_off(http: httpx.Client) -> None:
        body = {"model": "agent", "messages": [{"role": "user", "content": "Copy 4 17."}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            next(response.iter_lines(), None)
        http.post("/v1/chat/completions", content=b"{")
        http.post("/v1/chat/completions", json={"model": "nobody", "messages": []})

    def look(http: httpx.Client) -> None:
        headers = {"authorization": f"Bearer {key}"}
        for path in ("", "/versions", "/learner", "/judges"):
            http.get(f"/admin/agents/agent{path}", headers=headers)
        http.get("/metrics")

    def again(what: Any) -> None:
        while not is_over.wait(2.0):
            with suppress(httpx.HTTPError), httpx.Client(base_url=url, timeout=30) as http:
                what(http)

    threads = [threading.Thread(target=again, args=(what,), daemon=True) for what in (break_off, look)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(40)
