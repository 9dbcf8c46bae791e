"""A gateway and an ingester of any checkout in processes of their own, a stub engine, and a listener that must not be
reached.

Everything is on loopback, in a temporary folder.
"""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from burnish.testing import StubEngine

ENGINE_KEY = "engine-secret-5f1c0e7a9b"
PROVIDER_KEY = "provider-secret-77aa31d0"
JUDGE_KEY = "judge-secret-1f0b6c22"
WEBHOOK = "https://hooks.example/planted-9d31"
HELLO = [{"role": "user", "content": "hello there"}]
PUBLIC = "burnish.example"
KEYS: Mapping[str, Mapping[str, Any]] = {
    "talker": {"scopes": ["inference"]},
    "voter": {"scopes": ["feedback"]},
    "both": {"scopes": ["inference", "feedback"]},
    "backend": {"scopes": ["inference", "feedback", "users"]},
    "ann": {"scopes": ["inference", "feedback"], "user": "ann"},
    "bob": {"scopes": ["inference", "feedback"], "user": "bob"},
    "limited": {"scopes": ["inference", "feedback"], "agents": ["second"]},
    "slow": {"scopes": ["inference", "feedback"], "requests_per_minute": 5},
    "slower": {"scopes": ["inference", "feedback"], "requests_per_minute": 5},
    "metered": {"scopes": ["inference", "users"], "requests_per_minute": 6},
    "viewer": {"scopes": ["viewer"]},
    "operator": {"scopes": ["operator"]},
    "admin": {"scopes": ["admin"]},
    "foreigner": {"scopes": ["inference", "feedback", "operator"], "tenant": "other"},
}
HERE = Path(__file__).parents[3] / "src"


@dataclass
class Stand:
    """What an attacker can reach, and what tells whether he succeeded. `pids` are the parts' processes by name.

    `pages_port` is that of the pages for people, if they are served.
    """

    folder: Path
    port: int
    engine: StubEngine
    secrets: dict[str, str]
    pids: dict[str, int]
    evil: "Listener"
    pages_port: int = 0
    counter: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def ask(
        self,
        method: str,
        path: str,
        key: str | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request. A broken connection is a 599."""
        given = dict(headers or {})
        if key is not None:
            given["authorization"] = f"Bearer {self.secrets.get(key, key)}"
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            return httpx.request(method, url, json=body, content=content, headers=given, timeout=30.0)
        except (httpx.TransportError, httpx.InvalidURL, ValueError):
            return httpx.Response(599, text="")

    def chat(self, key: str = "talker", fields: Mapping[str, Any] | None = None, **more: Any) -> httpx.Response:
        body = {"model": "agent", "messages": HELLO} | dict(fields or {}) | more
        return self.ask("POST", "/v1/chat/completions", key, body)

    def said(self, key: str = "talker", **fields: Any) -> str:
        """The id of a new reply."""
        text = f"hello {next(self.counter)}"
        answer = self.chat(key, {"messages": [{"role": "user", "content": text}]} | fields)
        return str(answer.json()["id"])

    def raw(self, data: bytes, seconds: float = 5.0, *, is_half_closed: bool = True, user: int | None = None) -> bytes:
        """What the gateway answers to these bytes on a connection of its own, until it closes or says no more.

        `user`: whose connection it is; needs root.
        """
        with connected(self.port, seconds, user) as line:
            answer = b""
            with suppress(OSError):
                line.sendall(data)
                if is_half_closed:
                    line.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                while piece := line.recv(65536):
                    answer += piece
            return answer

    def taken(self, head: bytes, n_bytes: int, piece: bytes = b"x" * 65536) -> int:
        """How many bytes after `head` the gateway takes before it answers or closes."""
        sent = 0
        with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as line, suppress(OSError):
            line.sendall(head)
            line.settimeout(2.0)
            while sent < n_bytes:
                line.setblocking(False)
                with suppress(BlockingIOError):
                    line.recv(1)
                    return sent
                line.settimeout(2.0)
                sent += line.send(piece)
        return sent

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the journal."""
        with sqlite3.connect(f"file:{self.state / 'journal.db'}?mode=ro", uri=True, timeout=10) as line:
            return line.execute(query, values).fetchall()

    def row(self, query: str, *values: Any, seconds: float = 10.0) -> tuple[Any, ...] | None:
        """The first row, once the ingester has made it. None if that does not happen."""
        deadline = time.monotonic() + seconds
        while not (found := self.rows(query, *values)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found[0] if found else None

    def settled(self, name: str) -> bool:
        """True once the ingester has filed the reply and everything recorded before it."""
        return self.row("SELECT 1 FROM interaction WHERE interaction_id = ?", name) is not None

    def joined(self, feedback_id: str, name: str) -> bool:
        """Whether feedback was attached to the reply."""
        marker = self.said()  # what is recorded after the feedback is filed after it
        self.settled(marker)
        time.sleep(0.3)
        found = self.rows("SELECT interaction_id FROM feedback WHERE feedback_id = ?", feedback_id)
        return (name,) in found

    def memory(self, part: str = "gateway") -> int:
        """The resident memory of a part, in bytes."""
        for line in Path(f"/proc/{self.pids[part]}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu(self, part: str = "gateway") -> float:
        """The CPU time of a part so far, in seconds."""
        tasks = Path(f"/proc/{self.pids[part]}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def log(self) -> str:
        """Everything that the parts have printed."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


def connected(port: int, seconds: float, user: int | None = None) -> socket.socket:
    """A connection to a port of this machine, of another user if one is given."""
    before = os.geteuid()
    if user is not None:
        os.seteuid(user)
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=seconds)
    finally:
        os.seteuid(before)


class Listener:
    """A server that nobody must be sent to. `heard` are the first bytes of each connection."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            with line, suppress(OSError):
                line.settimeout(1.0)
                self.heard.append(line.recv(65536))
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def standing(folder: Path, root: Path = HERE, has_pages: bool = False, **settings: str) -> Iterator[Stand]:
    """A stand with the code in `root`. `settings` are environment variables of all parts. `has_pages`: the pages for
    people are served too.
    """
    listener = Listener()
    with StubEngine(api_key=ENGINE_KEY, needs_loaded=False) as engine:
        port, pages_port = _free_ports(2)
        pages = {"BURNISH_GATEWAY__UI_PORT": str(pages_port)} if has_pages else {}
        public = {"BURNISH_GATEWAY__ALLOWED_HOSTS": json.dumps([PUBLIC])}
        environment = environment_of(root, folder, engine.url, port) | public | pages | settings
        environment |= {"BURNISH_JUDGE__API_KEY": JUDGE_KEY, "BURNISH_ALERTS__WEBHOOK": WEBHOOK}
        secrets = set_up(environment, folder, KEYS)
        parts = ["gateway", "ingester", *(["remote"] if "BURNISH_REMOTE__MODEL" in settings else [])]
        parts += ["ui"] if has_pages else []
        processes = {part: _run(part, environment, folder) for part in parts}
        try:
            pids = {name: process.pid for name, process in processes.items()}
            stand = Stand(folder, port, engine, secrets, pids, listener, pages_port)
            _wait(stand, processes)
            yield stand
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait(30)
            listener.close()


def environment_of(root: Path, folder: Path, engine: str, port: int) -> dict[str, str]:
    """The environment of parts with the code in `root`, the state in `folder` and an engine at that URL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    return clean | {
        "PYTHONPATH": str(root),
        "BURNISH_STATE_DIR": str(folder / "state"),
        "BURNISH_ENGINE__URLS": json.dumps([engine]),
        "BURNISH_ENGINE__API_KEY": ENGINE_KEY,
        "BURNISH_GATEWAY__PORT": str(port),
    }


def set_up(environment: Mapping[str, str], folder: Path, keys: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Make the state directory and the agents `second` and `theirs`. Returns the secrets of `keys`, made too."""
    folder.mkdir(parents=True, exist_ok=True)
    script = [sys.executable, str(Path(__file__).with_name("setting_up.py")), json.dumps(keys)]
    made = subprocess.run(script, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"the stand could not be set up: {made.stderr[-2000:]}")
    secrets: dict[str, str] = json.loads(made.stdout.splitlines()[-1])
    return secrets


def command_of(part: str, root: Path) -> list[str]:
    """The command that runs a part with the code in `root`."""
    verb = ["run", part] if (root / "burnish" / "processes").exists() else [part]
    return [sys.executable, "-m", "burnish", *verb]


def _free_ports(n: int) -> list[int]:
    with ExitStack() as probes:
        made = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [probe.getsockname()[1] for probe in made]


def _run(part: str, environment: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / f"{part}.log").open("wb") as log:
        command = command_of(part, Path(environment["PYTHONPATH"]))
        return subprocess.Popen(command, env=dict(environment), cwd=folder, stdout=log, stderr=log)


def _wait(stand: Stand, processes: "Mapping[str, subprocess.Popen[bytes]]") -> None:
    deadline = time.monotonic() + 60
    while not _is_up(stand, processes):
        dead = [name for name, process in processes.items() if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            raise RuntimeError(f"the stand did not start: {dead} {stand.log()[-2000:]}")
        time.sleep(0.1)


def _is_up(stand: Stand, parts: Collection[str]) -> bool:
    if "ui" in parts:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", stand.pages_port)):
                return False
    return stand.ask("GET", "/healthz").status_code == 200 and stand.chat().status_code == 200
