"""Random kill -9 and SIGSTOP of every part of a real `burnish up`.

The plan follows from the seed alone. A fault is over when its part works again: a gateway or an engine answers a
client, another part has a process that beats. The next fault comes only then, so each has a recovery time of its own.
A run that was broken off goes on where it was.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.bars import Tell
from benchmarks.chaos.ledger import EXCUSED, GRACE, Clients, Ledger, audit, wait_filed
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal.tables import LoadJob
from tests.adapters.files.test_binding import publish
from tests.e2e.whole import Whole, free_port, until

PARTS = ("gateway", "ingester", "swapper", "judge", "learner", "engine")
KINDS = ("kill", "stall")
PATIENCE = 180.0
SETTLE = 1.5
"""Seconds between two faults, at most."""
STALL = (0.5, 4.0)
"""Seconds for which a part is stopped."""
_LISTENS = "0A"
"""A socket's state in /proc/net/tcp."""
ADAPTERS = (1, 2)
"""Versions that the server has before the first fault. The later one is live."""


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
    with _engine(folder) as engine:
        whole = Whole(folder / "state", {"engine.urls": [engine.url], "gateway.processes": 1})
        settings = Settings(state_dir=whole.state)
        _give_adapters(settings)
        whole.start()
        ledger = Ledger(folder / "ledger.jsonl").load()
        try:
            whole.wait_ready()
            _Parts(whole, settings, engine).wait_all()
            with Clients(whole.url, ledger, n_clients, most_turns):
                for number, fault in enumerate(plan(seed, n)[len(done) :], len(done)):
                    tell(f"fault {number + 1} of {n}: {fault.kind} {fault.part}; {ledger.n_whole} whole replies")
                    time.sleep(fault.pause)
                    done.append(_Parts(whole, settings, engine).suffer(number, fault))
                    with (folder / "faults.jsonl").open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(asdict(done[-1])) + "\n")
                time.sleep(2 * GRACE)
            tell("waiting until all is filed")
            found = wait_filed(lambda: audit(settings.state_dir / "journal.db", ledger), 60.0)
        finally:
            whole.stop()
    failed = [each for each in ledger.seen if not each.is_whole]
    unexcused = [each for each in failed if not _is_excused(each.began, each.ended, done)]
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
        "trained_twice": float(found.trained_twice),
        "failed_by_others": float(len(unexcused)),
        "adapters_lost": float(_n_lost_adapters(settings)),
        **_recoveries(done),
    }


class Engine:
    """A stub engine in a process of its own, which is started again on its port as a supervisor would."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "engine.log").open("ab")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "burnish.testing", "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        until(self.is_up, "the engine")

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_up(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=2).status_code == 200
        return False

    def again(self) -> None:
        self._process.wait(10)
        self.start()

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(10)
        self._log.close()


@contextmanager
def _engine(folder: Path) -> Iterator[Engine]:
    engine = Engine(folder)
    try:
        yield engine
    finally:
        engine.stop()


class _Parts:
    """The running parts, by their processes."""

    def __init__(self, whole: Whole, settings: Settings, engine: Engine) -> None:
        self._whole = whole
        self._settings = settings
        self._engine = engine

    def wait_all(self) -> None:
        for part in PARTS:
            until(lambda part=part: self._works(part, 0), f"{part} to work", PATIENCE)  # type: ignore[misc]

    def suffer(self, number: int, fault: Fault) -> Done:
        """Let one part suffer, and wait until it works again."""
        pid, at = self._pid(fault.part), time.time()
        if fault.kind == "kill":
            os.kill(pid, signal.SIGKILL)
            if fault.part == "engine":
                self._engine.again()  # its boot does not count
            began = time.time() if fault.part == "engine" else at
        else:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(fault.seconds)
            os.kill(pid, signal.SIGCONT)
            began, pid = time.time(), 0
        until(lambda: self._works(fault.part, pid), f"{fault.part} to work after a {fault.kind}", PATIENCE)
        now = time.time()
        return Done(number, fault.part, fault.kind, at, now, now - began)

    def _pid(self, part: str) -> int:
        if part == "engine":
            return self._engine.pid
        mark = f"burnish run {part}"
        if part == "gateway":  # its spare has the same name and listens to nobody
            (pid,) = [pid for pid, said in self._whole.members().items() if mark in said and _listens(pid)]
            return pid
        return self._whole.pid_of(mark)

    def _works(self, part: str, but_not: int) -> bool:
        """True if the part works, in another process than `but_not`."""
        if part in ("gateway", "engine"):
            return self._whole.chat("are you there?")[0] == 200
        with suppress(ValueError):
            pid = self._pid(part)
            beat = self._settings.run_dir / "beats" / str(pid)
            return pid != but_not and beat.exists() and time.time() - beat.stat().st_mtime < 3.0
        return False


def _listens(pid: int) -> bool:
    """True if the process has a socket on which it takes connections."""
    with suppress(OSError):
        table = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{fields[9]}]" for fields in table if fields[3] == _LISTENS}
        return any(os.readlink(handle) in listening for handle in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _give_adapters(settings: Settings) -> None:
    """Versions with files, the later one live, as a gate would have left them."""
    journal, store = prepare(settings), AdapterStore(settings.adapters_dir)
    if not store.versions("agent"):
        publish(store, *ADAPTERS)
        with journal.write() as session:
            for number in ADAPTERS:
                digest = store.manifest("agent", number)["files"]["adapter_model.safetensors"]
                lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest=str(digest))
                lifecycle.promote(session, "agent", number, expected=number - 1, actor="chaos", reason="given")
                session.get_one(LoadJob, f"agent@v{number}").state = "done"
    journal.close()


def _n_lost_adapters(settings: Settings) -> int:
    store, n_lost = AdapterStore(settings.adapters_dir), 0
    for number in ADAPTERS:
        try:
            store.verify("agent", number)
        except AdapterError as error:
            print(f"adapter lost: {error}", file=sys.stderr)
            n_lost += 1
    return n_lost


def _is_excused(began: float, ended: float, done: Sequence[Done]) -> bool:
    return any(fault.part in EXCUSED and began < fault.recovered_at + GRACE and ended > fault.at for fault in done)


def _recoveries(done: Sequence[Done]) -> dict[str, float]:
    """The 95th percentile of each part's recoveries, in seconds."""
    found = {}
    for part in PARTS:
        for kind in KINDS:
            taken = sorted(each.recovery for each in done if (each.part, each.kind) == (part, kind))
            if taken:
                name = f"recover_{part}" if kind == "kill" else f"recover_{part}_stall"
                found[name] = taken[min(len(taken) - 1, int(0.95 * len(taken)))]
    return found


def _known(file: Path) -> list[Done]:
    lines: list[dict[str, Any]] = []
    if file.exists():
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Done(**line) for line in lines]
