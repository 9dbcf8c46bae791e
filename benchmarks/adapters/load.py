"""Load beside a measurement: clients in their own process, for the length of a `with` block."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from benchmarks.adapters.clients import Job, Seen


class Load:
    """Running clients. `seen` is set after they have ended."""

    def __init__(self, job: Job) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.adapters.clients"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._write(json.dumps(asdict(job)))
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.seen = Seen()

    def end(self) -> None:
        """Let the running requests end and read the results."""
        self._write("stop")
        output, _ = self._process.communicate(timeout=180)
        self.seen = Seen(**json.loads(output))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def running(job: Job) -> Iterator[Load]:
    """Run the clients until the block ends."""
    load = Load(job)
    try:
        yield load
        load.end()
    except BaseException:
        load.kill()
        raise
