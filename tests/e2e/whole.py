"""`burnish up` as a user starts it, on free ports, for tests of the whole."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.adapters.registry import lifecycle
from burnish.config import Settings
from burnish.journal import Journal

PATIENCE = 300.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition. A failure names the condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


@dataclass
class Whole:
    """One running Burnish."""

    state: Path
    settings: dict[str, Any] = field(default_factory=dict)
    gateway: int = field(default_factory=free_port)
    engine: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway}"

    def start(self) -> None:
        chosen = {"gateway.ui_port": 0, "gateway.port": self.gateway, "engine.port": self.engine, **self.settings}
        flags = [text for key, value in chosen.items() for text in ("--set", f"{key}={json.dumps(value)}")]
        self.log = (self.state.parent / "up.log").open("ab")
        self.process = subprocess.Popen(
            # a relative directory, like most users'
            [sys.executable, "-m", "burnish", "up", "--state", self.state.name, *flags],
            cwd=self.state.parent,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **self.environment},
        )

    def stop(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(timeout=150)
        self.log.close()
        return status

    def members(self) -> dict[int, str]:
        """Living processes of this Burnish, by pid: their command names its state directory or its engine's port."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal() or int(folder.name) == os.getpid():
                continue
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environment = (folder / "environ").read_bytes()
                is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            ours = (
                str(self.state).encode() in environment
                or str(self.state) in command
                or f"--port {self.engine}" in command
            )
            if ours and not is_zombie:
                found[int(folder.name)] = command
        return found

    def pid_of(self, mark: str) -> int:
        (pid,) = [pid for pid, command in self.members().items() if mark in command]
        return pid

    def request(self, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any, dict[str, str]]:
        """Status, parsed body and headers."""
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read()), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), dict(error.headers)
        except OSError as error:
            return 0, str(error), {}

    def chat(self, text: str, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        body = {"model": "agent", "messages": [{"role": "user", "content": text}], "max_tokens": 40, **fields}
        return self.request("/v1/chat/completions", body)

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, (self.state.parent / "up.log").read_text()[-3000:]
            return self.request("/readyz")[0] == 200 and self.chat("Copy 4 17.")[0] == 200

        until(is_ready, "burnish up to be ready")


def journal_of(whole: Whole) -> Journal:
    return Journal.open(Settings(state_dir=whole.state).journal_url, migrate=False)


def learn_once(whole: Whole) -> int:
    """Train and promote a version from a user's feedback. Returns its number."""
    admin = (whole.state / "admin.key").read_text().strip()
    journal = journal_of(whole)
    before = whole.request("/admin/agents/agent/versions", key=admin)[1]["live"]

    def live() -> int:
        with journal.read() as session:
            return lifecycle.alias(session, "agent") or 0

    def teach_and_look() -> bool:
        for n in range(4):
            status, reply, _ = whole.chat(f"Copy {n} 17.")
            assert status == 200
            body = {"target": reply["id"], "rating": "up" if n % 2 else "down"}
            assert whole.request("/v1/feedback", body, admin)[0] == 202
        return bool(live() != before)

    until(teach_and_look, "a version to be promoted")
    return live()
