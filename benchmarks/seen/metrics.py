"""What the metrics cost the gateway, and how long a scrape takes over a large journal.

Two real gateways, one with metrics and one without, get 1,000 requests a second in interleaved rounds. The one with
metrics is scraped as often as deploy/monitoring tells Prometheus to. Its requests have a `traceparent`, and keeping
that is all that the gateway does for traces. A ratio is the median over the rounds of with ÷ without. Processor time is
steadier than latency on a busy machine.
"""

import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.bars import Bar, Tell
from benchmarks.gateway import ours, servers
from benchmarks.gateway.load import Job
from benchmarks.gateway.rounds import RATE, quantile
from benchmarks.gateway.servers import Server
from benchmarks.seen.journal import fill
from burnish import serving_table
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.keys import Scope, mint
from burnish.server.gateway.metrics.counts import Counts
from burnish.server.gateway.metrics.scrape import FRESH, Scraper

UPSTREAM_PORT, WITH_PORT, WITHOUT_PORT = 18801, 18802, 18803
N_CALLS = 200_000
SCRAPE_SECONDS = 15.0
BARS: tuple[Bar, ...] = (
    (
        "p50 or p99 at 1,000 requests/s with metrics and traces, of before",
        "metrics_added",
        "≤ 1.03",
        lambda f: f["metrics_added"] <= 1.03,
    ),
    ("counting one streamed reply, µs", "metrics_us", "< 2", lambda f: f["metrics_us"] < 2),
    ("a scrape, the journal as large as given, ms", "scrape_ms", "≤ 1,000", lambda f: f["scrape_ms"] <= 1000),
)


def measure(folder: Path, rounds: int, seconds: float, turns: int, tell: Tell) -> dict[str, float]:
    """The figures of the part `metrics`."""
    figures = {"metrics_us": microseconds_of_a_reply()}
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}"
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.gateway.upstream", "--port", str(UPSTREAM_PORT)]
        folder.mkdir(parents=True)
        log = folder / "upstream.log"
        stack.enter_context(servers.running("upstream", command, UPSTREAM_PORT, servers.LOAD_CORE, log))
        measured, settings = stack.enter_context(ours.gateway(folder / "with", WITH_PORT, upstream))
        plain, _ = stack.enter_context(
            ours.gateway(folder / "without", WITHOUT_PORT, upstream, module="benchmarks.seen.unmeasured")
        )
        stack.enter_context(_scraped(settings))
        figures |= _compare(measured, plain, rounds, seconds, tell)
    tell(f"a scrape over {turns:,} turns")
    return figures | _scrape_times(folder / "large", turns, tell)


def microseconds_of_a_reply() -> float:
    """CPU time of the calls that one streamed reply makes, in µs: the best of five."""
    counts = Counts()

    def calls() -> float:
        began = time.process_time()
        for _ in range(N_CALLS):
            started = time.perf_counter()
            first = time.perf_counter() - started
            counts.replied("agent", 100, 64, "stop", first, time.perf_counter() - started)
            counts.answered("/v1/chat/completions", 200, time.perf_counter() - started)
        return time.process_time() - began

    return min(calls() for _ in range(5)) / N_CALLS * 1e6


def _compare(measured: Server, plain: Server, rounds: int, seconds: float, tell: Tell) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for target in (measured, plain):
        servers.load(Job(target.port, connections=16, n_requests=3000, seed=9_000))
    for number in range(rounds):
        # the order alternates, so that a drift of the machine favours neither
        for name, target in (("with", measured), ("without", plain))[:: 1 if number % 2 else -1]:
            tell(f"round {number + 1}: {name} metrics")
            before = target.cpu_seconds
            job = Job(target.port, connections=64, seconds=seconds, rate=RATE, seed=number)
            seen = servers.load(replace(job, is_traced=target is measured))
            if seen.n_failed:
                raise SystemExit(f"{name} metrics: {seen.n_failed} requests failed")
            found.setdefault(f"p50_ms_{name}", []).append(statistics.median(seen.latencies))
            found.setdefault(f"p99_ms_{name}", []).append(quantile(seen.latencies, 0.99))
            found.setdefault(f"us_per_request_{name}", []).append((target.cpu_seconds - before) / seen.n_ok * 1e6)
    figures = {name: statistics.median(values) for name, values in found.items()}
    for quantity in ("p50", "p99"):
        pairs = zip(found[f"{quantity}_ms_with"], found[f"{quantity}_ms_without"], strict=True)
        figures[f"metrics_added_{quantity}"] = statistics.median(a / b for a, b in pairs)
    cpu = zip(found["us_per_request_with"], found["us_per_request_without"], strict=True)
    figures["metrics_added_cpu"] = statistics.median(a / b for a, b in cpu)
    figures["metrics_added"] = max(figures["metrics_added_p50"], figures["metrics_added_p99"])
    return figures


@contextmanager
def _scraped(settings: Settings) -> Iterator[None]:
    """Ask for the figures every `SCRAPE_SECONDS`."""
    secret, key = mint([Scope.METRICS])
    serving_table.update(
        settings.run_dir / "routes.json", lambda table: replace(table, keys={**table.keys, key.digest: key})
    )
    url = f"http://127.0.0.1:{settings.gateway.port}/metrics"
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(SCRAPE_SECONDS):
            request = urllib.request.Request(url, headers={"authorization": f"Bearer {secret}"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                if b"burnish_requests_total" not in answer.read():
                    raise SystemExit("a scrape without figures")

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield
    finally:
        is_over.set()
        asker.join()


def _scrape_times(folder: Path, turns: int, tell: Tell) -> dict[str, float]:
    settings = Settings(state_dir=folder)
    journal = prepare(settings)
    fill(journal, "agent", turns, tell)
    scraper = Scraper(settings, journal)
    times = [_seconds(scraper.text) for _ in range(5)]
    text = scraper.text().decode()
    journal.close()
    if bad := [line for line in text.splitlines() if line.startswith("burnish_scrape_ok") and line.endswith(" 0.0")]:
        tell(f"not read: {', '.join(bad)}")
    return {"scrape_ms": max(times) * 1e3, "scrape_turns": turns, "scrape_parts_failed": len(bad)}


def _seconds(work: Callable[[], object]) -> float:
    time.sleep(FRESH)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
