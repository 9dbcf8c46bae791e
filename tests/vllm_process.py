"""A real vLLM server as a child process, for the tests marked `engine`."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from burnish.config import BASE_NAME, Engine, Settings
from burnish.processes import vllm_server

BOOT_SECONDS = 480.0
"""Seconds until the start counts as failed. A busy machine took more than 240."""


@dataclass(frozen=True)
class VllmServer:
    """A running vLLM: its URL, its key, the name of its base, the model's directory."""

    url: str
    api_key: str
    base_name: str
    model: Path
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def boot(model: Path, folder: Path) -> Iterator[VllmServer]:
    """vLLM with Burnish's flags. Its whole process group ends with the block."""
    engine = Engine(model=str(model), port=free_port(), dtype="float32", max_model_len=1024, max_lora_rank=16)
    settings = Settings(state_dir=folder, engine=engine)
    log = folder / "vllm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            vllm_server.command(settings),
            env=vllm_server.environment(settings, os.environ),
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = vllm_server.engine_url(settings)
        key = vllm_server.engine_key(settings)
        _wait_until_healthy(process, url, key, log)
        yield VllmServer(url, key, BASE_NAME, model, log)
    finally:
        _end_group(process)


def tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _wait_until_healthy(process: "subprocess.Popen[bytes]", url: str, key: str, log: Path) -> None:
    asked = urllib.request.Request(f"{url}/health", headers={"authorization": f"Bearer {key}"})
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"vLLM ended with status {process.returncode} before it was ready:\n{tail(log)}")
        try:
            with urllib.request.urlopen(asked, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM was not ready within {BOOT_SECONDS:.0f} s:\n{tail(log)}")


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
