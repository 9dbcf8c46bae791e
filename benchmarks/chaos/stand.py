"""A whole `burnish up` with a stub in the engine's place, as the chaos benchmark hurts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal.tables import LoadJob
from tests.adapters.files.test_binding import publish
from tests.e2e.whole import Whole, free_port, until

PARTS = ("gateway", "ingester", "swapper", "judge", "learner", "engine")
PATIENCE = 180.0
_LISTENS = "0A"
"""A socket's state in /proc/net/tcp."""
VLLM = "burnish.processes.vllm_on_cpu"
"""What the command of a vLLM says."""
ADAPTERS = (1, 2)
"""Versions that the server has before the first fault. The later one is live."""


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
def running_engine(folder: Path) -> Iterator[Engine]:
    engine = Engine(folder)
    try:
        yield engine
    finally:
        engine.stop()


class Parts:
    """The running parts, by their processes. Without a stub in its place, the engine is the server's own vLLM."""

    def __init__(self, whole: Whole, settings: Settings, engine: Engine | None = None) -> None:
        self._whole = whole
        self._settings = settings
        self._engine = engine

    def wait_all(self) -> None:
        for part in PARTS:
            until(lambda part=part: self.works(part, 0), f"{part} to work", PATIENCE)  # type: ignore[misc]

    def pid(self, part: str) -> int:
        if part == "engine":
            return self._engine.pid if self._engine else self._whole.pid_of(VLLM)
        mark = f"burnish run {part}"
        if part == "gateway":  # its spare has the same name and listens to nobody
            (pid,) = [pid for pid, said in self._whole.members().items() if mark in said and _listens(pid)]
            return pid
        return self._whole.pid_of(mark)

    def works(self, part: str, but_not: int) -> bool:
        """True if the part works, in another process than `but_not`."""
        if part in ("gateway", "engine"):
            return self._whole.chat("are you there?")[0] == 200
        with suppress(ValueError):
            pid = self.pid(part)
            beat = self._settings.run_dir / "beats" / str(pid)
            return pid != but_not and beat.exists() and time.time() - beat.stat().st_mtime < 3.0
        return False


def _listens(pid: int) -> bool:
    """True if the process has a socket on which it takes connections."""
    with suppress(OSError):
        table = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{fields[9]}]" for fields in table if fields[3] == _LISTENS}
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(handle) in listening:
                    return True
    return False


def give_adapters(settings: Settings) -> None:
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


def begin(folder: Path) -> Path:
    """Make the folder of a run that cannot go on where another was broken off. Exits if there is one already."""
    if folder.exists():
        sys.exit(f"{folder} holds a run already; give another --folder, or another --seed")
    folder.mkdir(parents=True)
    return folder.resolve()


def p95(values: Sequence[float]) -> float:
    """The 95th percentile of at least one value."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def n_lost_adapters(settings: Settings, numbers: Collection[int] = ADAPTERS) -> int:
    """How many of these versions are not whole in the store."""
    store, n_lost = AdapterStore(settings.adapters_dir), 0
    for number in numbers:
        try:
            store.verify("agent", number)
        except AdapterError as error:
            print(f"adapter lost: {error}", file=sys.stderr)
            n_lost += 1
    return n_lost
