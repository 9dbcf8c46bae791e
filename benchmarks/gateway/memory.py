"""Whether the gateway's memory grows with the requests that it has served."""

from benchmarks.gateway import servers
from benchmarks.gateway.load import Job
from benchmarks.gateway.rounds import Figures
from benchmarks.gateway.servers import Server

N_POINTS = 5


def slope_mb_per_100k(gateway: Server, figures: Figures, n_requests: int) -> float:
    """MB of resident memory gained per 100,000 requests: the least-squares slope over `n_requests`, after a warm-up."""
    _serve(gateway, figures, n_requests // 5, 70)
    done, points = 0, [(0, gateway.resident_bytes)]
    for part in range(N_POINTS):
        done += _serve(gateway, figures, n_requests // N_POINTS, 80 + part)
        points.append((done, gateway.resident_bytes))
    mean_n = sum(n for n, _ in points) / len(points)
    mean_bytes = sum(size for _, size in points) / len(points)
    rise = sum((n - mean_n) * (size - mean_bytes) for n, size in points)
    run = sum((n - mean_n) ** 2 for n, _ in points)
    return rise / run * 100_000 / 2**20


def _serve(gateway: Server, figures: Figures, n_requests: int, seed: int) -> int:
    seen = servers.load(Job(gateway.port, connections=16, n_requests=n_requests, seed=seed * 1000))
    if seen.n_failed:
        raise SystemExit(f"ours: {seen.n_failed} requests failed")
    figures.request_ids += seen.request_ids
    return seen.n_ok
