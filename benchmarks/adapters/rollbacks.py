"""`rollback_ms`: from the admin request to the last request that any of four gateways sends to the bad version."""

import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.adapters import load, stand
from benchmarks.adapters.clients import AGENT, Job
from benchmarks.adapters.stand import Stand
from benchmarks.bars import Bar, Tell

SHORT = 2
"""Tokens of a reply. Requests come often, so that the moment of change is measured finely."""

N_GATEWAYS, ROUNDS = 4, 15
N_CLIENTS, PAUSE = 16, 0.1
"""A steady load that leaves the processors room. On a full machine the processors' queue would be measured."""
BARS: tuple[Bar, ...] = (
    ("rollback request to last request on the bad version, 4 gateways, "
     "ms", "rollback_ms", "≤ 100", lambda f: f["rollback_ms"] <= 100),
)  # fmt: skip


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """Rollbacks through the admin API, one after the other."""
    with stand.running(folder, gateway__processes=N_GATEWAYS) as whole:
        return _measure(whole, ROUNDS, tell)


def _measure(whole: Stand, rounds: int, tell: Tell) -> dict[str, float]:
    """`rollback_ms` of the worst of `rounds` rollbacks.

    `rollback_resolution_ms` is the median time between two requests.
    """
    whole.swap()
    asked: list[tuple[float, float, int]] = []
    with (
        whole.admin() as admin,
        load.running(
            Job(whole.port, len(whole.voices), streams=0, wholes=N_CLIENTS, max_tokens=SHORT, pause=PAUSE)
        ) as clients,
    ):
        for i in range(rounds):
            tell(f"rollback {i + 1} of {rounds}")
            whole.swap()
            time.sleep(1.5)
            asked.append((*whole.rollback(admin), whole.newest))
            time.sleep(1.0)
    moments = []
    starts = sorted(start for start, *_ in clients.seen.answers)
    for begin, _, bad in asked:
        late = [
            at
            for at, _, version, _ in clients.seen.answers
            if begin < at < begin + 1.0 and version == f"{AGENT}@v{bad}"
        ]
        moments.append(1e3 * (max(late, default=begin) - begin))
    spread = [b - a for a, b in pairwise(starts)]
    gateways = sum(path.stat().st_size > 0 for path in whole.settings.segments_dir.glob("*.seg"))
    return {
        "rollback_ms": max(moments),
        "rollback_ms_median": median(moments),
        "rollback_answered_ms": 1e3 * median(end - begin for begin, end, _ in asked),
        "rollback_rounds": rounds,
        "rollback_resolution_ms": 1e3 * median(spread),
        "rollback_gateways": gateways,
        "rollback_failed": clients.seen.n_failed + clients.seen.n_wrong,
    }
