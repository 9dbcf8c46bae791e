"""A vLLM of the benchmark's own: the sandbox's base, and beside it the judge that was taught to obey its data."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.config import Engine, Settings
from burnish.sandbox import MODEL
from server import launch

SUGGESTIBLE = "suggestible"
ADAPTER = MODEL.parent / SUGGESTIBLE
BOOT_SECONDS = 300.0


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Its URL, its key, and the name of the base; the adapter answers as `SUGGESTIBLE`. Raises RuntimeError where it does not start."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    modules = ("--lora-modules", f"{SUGGESTIBLE}={ADAPTER}")
    engine = Engine(model=str(MODEL), port=port, dtype="float32", max_model_len=2048, max_lora_rank=16, extra_args=modules)
    settings = Settings(state_dir=folder, engine=engine)
    log = folder / "vllm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            launch.command(settings),
            env=launch.environment(settings, os.environ),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, launch.engine_url(settings), log)
        yield launch.engine_url(settings), launch.engine_key(settings), engine.base_name
    finally:
        _end(process)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    raise RuntimeError(f"vLLM did not start within {BOOT_SECONDS:.0f} s; the end of its log:\n{last}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server and what it started."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
