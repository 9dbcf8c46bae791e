"""The engine on a CPU: its scheduler's process is a fork of the API server, and its log says nothing of casts."""

import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest
from vllm_process import VllmServer

from burnish.processes import vllm_on_cpu


def said(message: str) -> logging.LogRecord:
    return logging.LogRecord("vllm", logging.WARNING, __file__, 1, message, ("w", "float32", "bfloat16"), None)


def test_a_line_for_each_weight_is_left_out() -> None:
    assert not vllm_on_cpu._is_news(said("Attempted to load weight %s with dtype %s into parameter with dtype %s"))
    assert vllm_on_cpu._is_news(said("Attempted to load nested weight %s %s %s"))


@pytest.mark.engine
def test_the_scheduler_is_a_fork_of_the_server(vllm_server: VllmServer) -> None:
    """A new Python would have another command: multiprocessing's `spawn_main`."""
    port = vllm_server.url.rpartition(":")[2]
    (server,) = [pid for pid, command in _commands().items() if f"--port\0{port}\0" in command]
    children = [command for pid, command in _commands().items() if _parent(pid) == server]
    assert any("EngineCore" in command for command in children)
    assert not any("spawn_main" in command for command in children)


def _commands() -> dict[int, str]:
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            found[int(name)] = Path(f"/proc/{name}/cmdline").read_text()
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
