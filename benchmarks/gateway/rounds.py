"""Interleaved rounds: each round measures every server once, so that changes of the machine affect all alike."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.gateway import servers
from benchmarks.gateway.load import Job, Seen
from benchmarks.gateway.servers import Server

OURS, RELAY, LITELLM, DIRECT = "ours", "relay", "litellm", "direct"
RATE = 1000.0
N_SESSIONS = 500
TURNS = 2  # of every growing session in each round


@dataclass
class Figures:
    """The measurements: for each server and quantity one value a round."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    request_ids: list[str] = field(default_factory=list)
    n_failed: int = 0

    def median(self, server: str, quantity: str) -> float:
        return statistics.median(self.values[server, quantity])


@dataclass
class Rounds:
    """Measures `targets`. DIRECT (the upstream itself) is one of them. `asking` changes the jobs of some targets."""

    targets: Sequence[Server]
    seconds: float
    asking: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)

    def warm_up(self) -> None:
        for target in self.targets:
            self._load(
                target, Job(target.port, connections=16, n_requests=300 if target.name == LITELLM else 3000, seed=9_000)
            )

    def run_one(self, number: int, tell: Callable[[str], None]) -> None:
        """Measure all quantities of all servers once."""
        for measure in (self._latency, self._paced, self._throughput, self._streams, self._growing):
            for target in self.targets:
                tell(f"round {number + 1}: {measure.__name__.strip('_')}, {target.name}")
                measure(target, number)

    def _latency(self, target: Server, number: int) -> None:
        seen = self._load(target, Job(target.port, seconds=self.seconds / 2, seed=number))
        self._add(target, "p50_ms", statistics.median(seen.latencies))
        seen = self._load(target, Job(target.port, kind="stream", seconds=self.seconds / 2, seed=1000 + number))
        self._add(target, "ttft_p50_ms", statistics.median(seen.first_bytes))

    def _paced(self, target: Server, number: int) -> None:
        if target.name == LITELLM:  # it serves a quarter of that rate, so an endless queue would be measured
            return
        seen = self._load(target, Job(target.port, connections=64, seconds=self.seconds, rate=RATE, seed=2000 + number))
        self._add(target, "p99_ms_1k", quantile(seen.latencies, 0.99))
        self._add(target, "p50_ms_1k", statistics.median(seen.latencies))

    def _throughput(self, target: Server, number: int) -> None:
        seen, cpu = self._timed(target, Job(target.port, connections=16, seconds=self.seconds, seed=3000 + number))
        self._add(target, "rps", seen.n_ok / seen.seconds)
        self._add(target, "us_per_request", cpu / seen.n_ok * 1e6)

    def _streams(self, target: Server, number: int) -> None:
        connections = 8 if target.name == LITELLM else 96
        job = Job(target.port, kind="stream", connections=connections, seconds=self.seconds, seed=4000 + number)
        seen, cpu = self._timed(target, job)
        self._add(target, "chunks_per_s", seen.n_events / seen.seconds)
        self._add(target, "us_per_chunk", cpu / seen.n_events * 1e6)

    def _growing(self, target: Server, number: int) -> None:
        if target.name in (DIRECT, LITELLM):
            return
        turns = (number * TURNS, (number + 1) * TURNS)
        job = Job(target.port, kind="growing", connections=16, sessions=N_SESSIONS, turns=turns)
        seen, cpu = self._timed(target, job)
        self._add(target, "rps_100k", seen.n_ok / seen.seconds)
        self._add(target, "us_per_100k", cpu / seen.n_ok * 1e6)

    def _timed(self, target: Server, job: Job) -> tuple[Seen, float]:
        before = target.cpu_seconds
        seen = self._load(target, job)
        return seen, target.cpu_seconds - before

    def _load(self, target: Server, job: Job) -> Seen:
        # No client shares a core with an engine, so clients that ask the upstream directly run on the gateway's core.
        # From the engine's core a request would wake no other core, and two of the four wakes of a relayed request
        # would be counted as the gateway's cost.
        job = replace(job, **self.asking.get(target.name, {}))  # type: ignore[arg-type]
        seen = servers.load(job, servers.GATEWAY_CORE if target.name == DIRECT else servers.LOAD_CORE)
        if target.name == OURS:
            self.figures.n_failed += seen.n_failed
            self.figures.request_ids += seen.request_ids
        if seen.n_failed and target.name in (OURS, DIRECT):
            raise SystemExit(f"{target.name}: {seen.n_failed} of {seen.n_failed + seen.n_ok} requests failed")
        return seen

    def _add(self, target: Server, quantity: str, value: float) -> None:
        self.figures.values[target.name, quantity].append(value)


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


MEMORY_POINTS = 5


def slope_mb_per_100k(gateway: Server, figures: Figures, n_requests: int) -> float:
    """MB of resident memory gained per 100,000 requests: the least-squares slope over `n_requests`, after a warm-up."""
    _serve_requests(gateway, figures, n_requests // 5, 70)
    done, points = 0, [(0, gateway.resident_bytes)]
    for part in range(MEMORY_POINTS):
        done += _serve_requests(gateway, figures, n_requests // MEMORY_POINTS, 80 + part)
        points.append((done, gateway.resident_bytes))
    mean_n = sum(n for n, _ in points) / len(points)
    mean_bytes = sum(size for _, size in points) / len(points)
    rise = sum((n - mean_n) * (size - mean_bytes) for n, size in points)
    run = sum((n - mean_n) ** 2 for n, _ in points)
    return rise / run * 100_000 / 2**20


def _serve_requests(gateway: Server, figures: Figures, n_requests: int, seed: int) -> int:
    seen = servers.load(Job(gateway.port, connections=16, n_requests=n_requests, seed=seed * 1000))
    if seen.n_failed:
        raise SystemExit(f"ours: {seen.n_failed} requests failed")
    figures.request_ids += seen.request_ids
    return seen.n_ok
