"""The processes under test: started, pinned to a core, observed from outside, ended by process id."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gateway.load import Job, Seen

GATEWAY_CORE, LOAD_CORE = 0, 1
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Server:
    """One running process. Times are in seconds, memory is in bytes."""

    name: str
    port: int
    pid: int

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE


@contextmanager
def running(
    name: str,
    command: list[str],
    port: int,
    core: int,
    log: Path,
    env: dict[str, str] | None = None,
    ready: str = "/",
    cwd: Path | None = None,
) -> Iterator[Server]:
    """A server that answers on `port`, on one core."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            cwd=cwd,
        )
    os.sched_setaffinity(process.pid, {core % (os.cpu_count() or 1)})
    try:
        _wait(name, process, f"http://127.0.0.1:{port}{ready}", log)
        yield Server(name, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(name: str, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"{name} ended with status {process.returncode}; its log is {log}")
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{name} does not answer; its log is {log}")


def load(job: Job, core: int = LOAD_CORE) -> Seen:
    """Run one job in its own process, on `core`."""
    command = [sys.executable, "-m", "benchmarks.gateway.load"]
    done = subprocess.run(
        command,
        input=json.dumps(asdict(job)).encode(),
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core % (os.cpu_count() or 1)}),
    )
    return Seen(**json.loads(done.stdout))
