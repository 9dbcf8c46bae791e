"""Random kill -9 and SIGSTOP of every part of a real `burnish up`.

The plan follows from the seed alone. A fault is over when its part works again: a gateway or an engine answers a
client, another part has a process that beats. The next fault comes only then, so each has a recovery time of its own.
A run that was broken off goes on where it was.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Tell
from benchmarks.chaos.ledger import EXCUSED, GRACE, Clients, Ledger, Seen, audit, wait_filed
from benchmarks.chaos.stand import PARTS, PATIENCE, Engine, Parts, give_adapters, n_lost_adapters, p95, running_engine
from burnish.config import Settings
from tests.e2e.whole import Whole, until

KINDS = ("kill", "stall")
SETTLE = 1.5
"""Seconds between two faults, at most."""
STALL = (0.5, 4.0)
"""Seconds for which a part is stopped."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the plan. `seconds` is how long a stall lasts, `pause` the time before it."""

    part: str
    kind: str
    seconds: float
    pause: float


@dataclass(frozen=True, slots=True)
class Done:
    """A fault that happened, and how long its part took to work again, from its death, or from the end of its stall."""

    number: int
    part: str
    kind: str
    at: float
    recovered_at: float
    recovery: float


def plan(seed: int, n: int) -> list[Fault]:
    """`n` faults. The first ones of a longer plan with the same seed are the same."""
    rng = random.Random(seed)
    return [
        Fault(rng.choice(PARTS), rng.choice(KINDS), rng.uniform(*STALL), rng.uniform(0.0, SETTLE)) for _ in range(n)
    ]


def measure(folder: Path, seed: int, n: int, n_clients: int, most_turns: int, tell: Tell) -> dict[str, float]:
    """Run the plan and audit the result."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seed").write_text(f"{seed}\n")
    done = _known(folder / "faults.jsonl")
    with running_engine(folder) as engine:
        whole = Whole(folder / "state", {"engine.urls": [engine.url], "gateway.processes": 1})
        settings = Settings(state_dir=whole.state)
        give_adapters(settings)
        whole.start()
        ledger = Ledger(folder / "ledger.jsonl").load()
        try:
            whole.wait_ready()
            parts = Parts(whole, settings, engine)
            parts.wait_all()
            with Clients(whole.url, ledger, n_clients, most_turns):
                for number, fault in enumerate(plan(seed, n)[len(done) :], len(done)):
                    tell(f"fault {number + 1} of {n}: {fault.kind} {fault.part}; {ledger.n_whole} whole replies")
                    time.sleep(fault.pause)
                    done.append(suffer(parts, number, fault, engine))
                    with (folder / "faults.jsonl").open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(asdict(done[-1])) + "\n")
                time.sleep(2 * GRACE)
            tell("waiting until all is filed")
            found = wait_filed(lambda: audit(settings.state_dir / "journal.db", ledger), 60.0)
        finally:
            whole.stop()
    failed = [each for each in ledger.seen if not each.is_whole]
    unexcused = failed_by_others(ledger, done)
    for what, texts in (("lost", found.lost), ("doubled", found.doubled)):
        for text in texts[:10]:
            print(f"{what}: {text}", file=sys.stderr)
    for each in unexcused[:10]:
        print(f"failed by others: {each}", file=sys.stderr)
    return {
        "chaos_seed": float(seed),
        "chaos_faults": float(len(done)),
        "chaos_turns": float(ledger.n_whole),
        "chaos_failed": float(len(failed)),
        "lost": float(len(found.lost)),
        "doubled": float(len(found.doubled)),
        "failed_by_others": float(len(unexcused)),
        "adapters_lost": float(n_lost_adapters(settings)),
        **recoveries(done),
    }


def suffer(parts: Parts, number: int, fault: Fault, engine: Engine | None = None) -> Done:
    """Let one part suffer, and wait until it works again. A stub `engine` has to be started again."""
    pid, at = parts.pid(fault.part), time.time()
    if fault.kind == "kill":
        os.kill(pid, signal.SIGKILL)
        began = at
        if fault.part == "engine" and engine is not None:
            engine.again()
            began = time.time()  # its boot does not count
    else:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(fault.seconds)
        os.kill(pid, signal.SIGCONT)
        began, pid = time.time(), 0
    until(lambda: parts.works(fault.part, pid), f"{fault.part} to work after a {fault.kind}", PATIENCE)
    now = time.time()
    return Done(number, fault.part, fault.kind, at, now, now - began)


def failed_by_others(ledger: Ledger, done: Sequence[Done]) -> list[Seen]:
    """The requests that failed without a fault of gateway or engine."""
    return [each for each in ledger.seen if not each.is_whole and not _is_excused(each.began, each.ended, done)]


def _is_excused(began: float, ended: float, done: Sequence[Done]) -> bool:
    return any(fault.part in EXCUSED and began < fault.recovered_at + GRACE and ended > fault.at for fault in done)


def recoveries(done: Sequence[Done]) -> dict[str, float]:
    """The 95th percentile of each part's recoveries, in seconds."""
    found = {}
    for part in PARTS:
        for kind in KINDS:
            taken = [each.recovery for each in done if (each.part, each.kind) == (part, kind)]
            if taken:
                name = f"recover_{part}" if kind == "kill" else f"recover_{part}_stall"
                found[name] = p95(taken)
    return found


def _known(file: Path) -> list[Done]:
    lines: list[dict[str, Any]] = []
    if file.exists():
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Done(**line) for line in lines]
