"""The gateway's own recording rate, and the ingester's on the segments that this gateway wrote."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway import ours as gateways
from benchmarks.gateway import servers
from benchmarks.gateway.load import Job
from benchmarks.ingest import ours

UPSTREAM_PORT, GATEWAY_PORT = 18711, 18710
CONNECTIONS = 16
N_HISTORY = 4
N_TURNS = 8


@dataclass(frozen=True, slots=True)
class Beside:
    """Turns a second: what the gateway recorded on its core, and what the ingester filed on the same core after it."""

    gateway: float
    ingester: float


def measure(folder: Path, n_sessions: int) -> Beside:
    """`n_sessions` conversations of 8 turns with 4 KB of history through a real gateway, then through the ingester."""
    command = [sys.executable, "-m", "benchmarks.gateway.upstream", "--port", str(UPSTREAM_PORT)]
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}"
    folder.mkdir()
    with (
        servers.running("upstream", command, UPSTREAM_PORT, servers.LOAD_CORE, folder / "upstream.log"),
        gateways.gateway(folder / "gateway", GATEWAY_PORT, upstream) as (_, settings),
    ):
        job = Job(GATEWAY_PORT, "growing", CONNECTIONS, sessions=n_sessions, turns=(0, N_TURNS), n_history=N_HISTORY)
        seen = servers.load(job)
    if seen.n_failed:
        raise SystemExit(f"{seen.n_failed} of {seen.n_failed + seen.n_ok} requests failed")
    return Beside(seen.n_ok / seen.seconds, ours.measure(settings, seen.n_ok).turns_per_s)
