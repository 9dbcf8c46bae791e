"""A disk that is full, fails or is slow, a clock that jumps, no file handles or no memory, under a whole `burnish up`.

A library in front of libc (faulty_machine.c, compiled here) lets every write, flush, new file and rename below the
state directory meet the fault, and every look at the clock, in all parts at once. The clock jumps forward or back, and
to the right time again. Handles and memory run out because the limit of each process is what it has. The plan follows
from the seed alone. A fault is over when every part works and a new reply is filed. Serving goes on meanwhile, but
without handles or memory a gateway may refuse. A full or failing disk may keep replies from being recorded, the other
faults may not. Nothing from before or after a fault may be lost.
"""

import os
import random
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bars import Tell
from benchmarks.chaos.ledger import GRACE, Clients, Ledger, Seen, audit, wait_filed
from benchmarks.chaos.stand import PARTS, Parts, begin, give_adapters, n_lost_adapters, p95, running_engine
from burnish.config import Settings
from tests.e2e.whole import Whole, until

OF_DISK = ("full", "failing", "slow")
LIMITS = {"handles": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}
KINDS = (*OF_DISK, "clock", *LIMITS)
SECONDS = (0.5, 6.0)
"""How long a fault lasts."""
PAUSE = (1.0, 3.0)
"""Seconds between two faults."""
SLOW_MS = (5, 60)
"""Milliseconds that each call waits on a slow disk."""
JUMP = (60, 90_000)
"""Seconds by which the clock jumps."""
PATIENCE = 120.0
SOURCE = Path(__file__).with_name("faulty_machine.c")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the plan. `amount`: milliseconds of a slow call, or seconds by which the clock jumps."""

    kind: str
    seconds: float
    amount: int
    pause: float


@dataclass(frozen=True, slots=True)
class Over:
    """A fault that is over: its time, and the seconds from its end until all worked again."""

    kind: str
    began: float
    ended: float
    recovery: float


class Control:
    """What disk and clock do at the moment, as the library reads it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(struct.pack("iii", 0, 0, 0))

    def set(self, kind: str, amount: int = 0) -> None:
        disk = (1 + OF_DISK.index(kind), amount) if kind in OF_DISK else (0, 0)
        with self.file.open("r+b") as stream:
            stream.write(struct.pack("iii", *disk, amount if kind == "clock" else 0))


def plan(seed: int, n: int) -> list[Fault]:
    """`n` faults. The first ones of a longer plan with the same seed are the same."""
    rng, faults = random.Random(seed), list[Fault]()
    for _ in range(n):
        kind = rng.choice(KINDS)
        amount = rng.choice((-1, 1)) * rng.randint(*JUMP) if kind == "clock" else rng.randint(*SLOW_MS)
        faults.append(Fault(kind, rng.uniform(*SECONDS), amount, rng.uniform(*PAUSE)))
    return faults


def library(folder: Path) -> Path:
    """The compiled library. Exits with the remedy if there is no compiler."""
    if shutil.which("cc") is None:
        sys.exit("faults of a machine need a C compiler; install one with `apt install gcc`")
    made = folder / "faulty_machine.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


def measure(folder: Path, seed: int, n: int, n_clients: int, tell: Tell) -> dict[str, float]:
    """Run the plan and audit the result."""
    folder = begin(folder)
    control, state = Control(folder / "control"), folder / "state"
    environment = {
        "LD_PRELOAD": str(library(folder)),
        "LD_FAULTY_FOLDER": f"{state}/",
        "LD_FAULTY_CONTROL": str(folder / "control"),
    }
    with running_engine(folder) as engine:
        whole = Whole(
            state, {"engine.urls": [engine.url], "gateway.processes": 1}, environment=os.environ | environment
        )
        settings = Settings(state_dir=state)
        give_adapters(settings)
        whole.start()
        ledger, done = Ledger(folder / "ledger.jsonl"), list[Over]()
        try:
            whole.wait_ready()
            parts = Parts(whole, settings, engine)
            parts.wait_all()
            if sound := [part for part in PARTS if part != "engine" and not _is_faulty(parts.pid(part))]:
                sys.exit(f"expected the library in every part, did not find it in {', '.join(sound)}")
            with Clients(whole.url, ledger, n_clients, 10**6):
                for number, fault in enumerate(plan(seed, n)):
                    time.sleep(fault.pause)
                    tell(f"fault {number + 1} of {n}: {fault.kind} for {fault.seconds:.1f} s; {ledger.n_whole} replies")
                    done.append(_suffer(control, parts, whole, settings, fault))
                    tell(f"all worked again after {done[-1].recovery:.1f} s")
                time.sleep(2 * GRACE)
            tell("waiting until all is filed")
            found = wait_filed(
                lambda: audit(settings.state_dir / "journal.db", ledger), 10.0
            )  # what was not recorded is missing for ever
        finally:
            control.set("")
            whole.stop()
    times = {each.text: each for each in ledger.seen}
    unrecorded = [text for text in found.lost if _may_be_unrecorded(times[text], done)]
    failed = [each for each in ledger.seen if not each.is_whole]
    refused = [each for each in failed if _may_be_refused(each, done)]
    failed = [each for each in failed if each not in refused]
    for each in failed[:10]:
        print(f"failed: {each}", file=sys.stderr)
    for text in (lost := [text for text in found.lost if text not in unrecorded])[:10]:
        print(f"lost: {times[text]}", file=sys.stderr)
    return {
        "machine_faults": float(len(done)),
        "machine_turns": float(ledger.n_whole),
        "machine_unrecorded": float(len(unrecorded)),
        "machine_lost": float(len(lost)),
        "machine_doubled": float(len(found.doubled)),
        "machine_refused": float(len(refused)),
        "machine_requests_failed": float(len(failed)),
        "machine_adapters_lost": float(n_lost_adapters(settings)),
        "machine_damaged": float(not _is_sound(settings.state_dir / "journal.db")),
        "machine_recover": p95([each.recovery for each in done]),
    }


def _suffer(control: Control, parts: Parts, whole: Whole, settings: Settings, fault: Fault) -> Over:
    began = time.time()
    if fault.kind in LIMITS:
        with _no_more(fault.kind, [parts.pid(part) for part in PARTS if part != "engine"]):
            time.sleep(fault.seconds)
    else:
        control.set(fault.kind, fault.amount)
        time.sleep(fault.seconds)
        control.set("")
    ended = time.time()
    until(
        lambda: all(parts.works(part, 0) for part in PARTS),
        f"all parts to work after the fault `{fault.kind}`",
        PATIENCE,
    )
    text = f"after the fault at {time.time_ns()}"
    until(lambda: whole.chat(text)[0] == 200, "a reply", PATIENCE)
    until(lambda: _is_filed(settings.state_dir / "journal.db", text), "a reply to be filed", PATIENCE)
    return Over(fault.kind, began, ended, time.time() - ended)


@contextmanager
def _no_more(kind: str, pids: Sequence[int]) -> Iterator[None]:
    """Inside the block these processes may take no more handles, or no more memory, than they have."""
    limit = LIMITS[kind]
    before = {pid: resource.prlimit(pid, limit) for pid in pids}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, limit, (_n_handles(pid) if kind == "handles" else _memory(pid), hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, limit, limits)


def _n_handles(pid: int) -> int:
    return 1 + max(int(handle.name) for handle in Path(f"/proc/{pid}/fd").iterdir())


def _memory(pid: int) -> int:
    """The size of the process's address space in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _is_faulty(pid: int) -> bool:
    return SOURCE.stem in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def _is_filed(journal: Path, text: str) -> bool:
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        return bool(database.execute("SELECT 1 FROM blob WHERE instr(body, ?) LIMIT 1", (text,)).fetchone())
    return False


def _may_be_unrecorded(seen: Seen, done: Sequence[Over]) -> bool:
    """True if the reply was written while the disk took no records."""
    return any(
        each.kind in ("full", "failing") and seen.began < each.ended and seen.ended > each.began for each in done
    )


def _may_be_refused(seen: Seen, done: Sequence[Over]) -> bool:
    """True if the request failed while its gateway could take no handle or no memory."""
    return any(
        each.kind in LIMITS and seen.began < each.ended + each.recovery + GRACE and seen.ended > each.began
        for each in done
    )


def _is_sound(journal: Path) -> bool:
    with closing(sqlite3.connect(journal)) as database:
        return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))
