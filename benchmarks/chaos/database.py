"""A PostgreSQL that is away, under a whole `burnish up` that clients talk to: nothing may fail and nothing may be lost.

The journal is on a PostgreSQL of its own. It does not answer (all its processes are stopped, as behind a network that
swallows everything), breaks off every connection, or is killed and recovers. The plan follows from the seed alone. A
fault is over when every part works and a new reply is filed. Serving needs no database, so no request may fail.
"""

import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes
from benchmarks.bars import Tell
from benchmarks.chaos.ledger import GRACE, Clients, Ledger, audit_rows, wait_filed
from benchmarks.chaos.stand import PARTS, PATIENCE, Parts, begin, p95, running_engine
from burnish.config import Settings
from tests import postgres
from tests.e2e.whole import Whole, until
from tests.postgres import Postgres

KINDS = ("silent", "severed", "killed")
SECONDS = (0.5, 20.0)
"""How long a database is silent or down. Connections are given up after 15 s without an answer."""
PAUSE = (1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the plan."""

    kind: str
    seconds: float
    pause: float


def plan(seed: int, n: int) -> list[Fault]:
    """`n` faults. The first ones of a longer plan with the same seed are the same."""
    rng = random.Random(seed)
    return [Fault(rng.choice(KINDS), rng.uniform(*SECONDS), rng.uniform(*PAUSE)) for _ in range(n)]


def measure(folder: Path, seed: int, n: int, n_clients: int, tell: Tell) -> dict[str, float]:
    """Run the plan and audit the result."""
    folder = begin(folder)
    recoveries: list[float] = []
    with postgres.serve(is_durable=True) as server, running_engine(folder) as engine:
        name = server.empty()
        chosen = {"engine.urls": [engine.url], "gateway.processes": 1, "journal.url": server.url(name)}
        whole, ledger = Whole(folder / "state", chosen), Ledger(folder / "ledger.jsonl")
        whole.start()
        try:
            whole.wait_ready()
            parts = Parts(whole, Settings(state_dir=whole.state), engine)
            parts.wait_all()
            with Clients(whole.url, ledger, n_clients, 10**6):
                for number, fault in enumerate(plan(seed, n)):
                    time.sleep(fault.pause)
                    lasts = "" if fault.kind == "severed" else f" for {fault.seconds:.1f} s"
                    tell(f"database: fault {number + 1} of {n}: {fault.kind}{lasts}; {ledger.n_whole} replies")
                    ended = _suffer(server, fault)
                    _wait_recovered(whole, parts, server, name)
                    recoveries.append(time.time() - ended)
                    tell(f"database: all worked again after {recoveries[-1]:.1f} s")
                time.sleep(2 * GRACE)
            tell("database: waiting until all is filed")
            found = wait_filed(lambda: audit_rows(lambda query: server.rows(query, name), ledger), 60.0)
        finally:
            whole.stop()
    failed = [each for each in ledger.seen if not each.is_whole]
    for each in failed[:10]:
        print(f"failed: {each}", file=sys.stderr)
    return {
        "database_faults": float(len(recoveries)),
        "database_turns": float(ledger.n_whole),
        "database_lost": float(len(found.lost)),
        "database_doubled": float(len(found.doubled)),
        "database_requests_failed": float(len(failed)),
        "database_recover": p95(recoveries),
    }


def _suffer(server: Postgres, fault: Fault) -> float:
    """Let the database suffer. Returns when it answers again."""
    if fault.kind == "severed":
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    elif fault.kind == "killed":
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(30)
        time.sleep(fault.seconds)
        server.start()
    else:
        stopped = processes.family(server.process.pid, processes.stats())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(fault.seconds)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    return time.time()


def _wait_recovered(whole: Whole, parts: Parts, server: Postgres, name: str) -> None:
    until(lambda: all(parts.works(part, 0) for part in PARTS), "all parts to work", PATIENCE)
    text = f"after the fault at {time.time_ns()}"
    until(lambda: whole.chat(text)[0] == 200, "a reply", PATIENCE)
    query = f"SELECT 1 FROM blob WHERE body LIKE '%{text}%' LIMIT 1"
    until(lambda: bool(server.rows(query, name)), "a reply to be filed", PATIENCE)
