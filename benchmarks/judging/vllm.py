"""A vLLM of the benchmark's own, on the sandbox's model."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.config import Engine, Judge, Settings
from burnish.keys import engine_key
from burnish.processes import vllm_server

BOOT_SECONDS = 600.0


@contextmanager
def running(folder: Path, *extra_args: str) -> Iterator[Settings]:
    """A vLLM on the sandbox's model with Burnish's flags and `extra_args`. Yields settings that reach it.

    Raises RuntimeError if it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = Engine(port=port, dtype="float32", max_model_len=2048, extra_args=extra_args)
    settings = Settings(state_dir=folder, engine=engine, judge=Judge(concurrency=8))
    environment, log = vllm_server.environment(settings, os.environ), folder / "vllm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            vllm_server.command(settings),
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        key = {"authorization": f"Bearer {engine_key(settings)}"}
        asked = urllib.request.Request(f"{vllm_server.engine_url(settings)}/health", headers=key)
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                raise RuntimeError(f"vLLM did not start within {BOOT_SECONDS:.0f} s; the end of its log:\n{last}")
            try:
                urllib.request.urlopen(asked, timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield settings
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
