"""A whole running Burnish on this machine: real vLLM, gateways, ingester, swapper without forgetting prompts."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.adapters import voices, words
from burnish import config, serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import admin_key_file, prepare, routes_file
from burnish.journal import Journal
from burnish.journal.tables import AgentRow

PATIENCE = 900.0
AGENT = "agent"


@dataclass
class Stand:
    """The running parts and the versions published on them. `spans` are (version, published at, live at), monotonic."""

    settings: config.Settings
    journal: Journal
    voices: Sequence[Path]
    newest: int = 0
    spans: list[tuple[int, float, float]] = field(default_factory=list)
    _digests: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._table = serving_table.watch(
            routes_file(self.settings)
        )  # read often, so it is parsed again only after a change

    @property
    def port(self) -> int:
        return self.settings.gateway.port

    def live(self, agent: str = AGENT) -> int:
        """The live version, from the serving table."""
        return self._table.current().agents[agent].live

    def publish(self, version: int) -> str:
        """Put a version's files in the store, as the learner does. Returns their digest."""
        voice = self.voices[words.voice_of(version, len(self.voices))]
        return self._digests.pop(version, None) or voices.publish(
            AdapterStore(self.settings.adapters_dir), AGENT, version, voice
        )

    def publish_ahead(self, n: int) -> None:
        """Write the files of the next `n` versions. This is a learner's work, which would disturb a measurement."""
        self._digests |= {version: self.publish(version) for version in range(self.newest + 1, self.newest + 1 + n)}

    def swap(self) -> None:
        """Publish the next version and wait until it is live."""
        self.newest += 1
        digest = self.publish(self.newest)
        started = time.monotonic()
        with self.journal.write() as session:
            lifecycle.announce(session, AGENT, self.newest, parent=self.newest - 1, step_id=None, digest=digest)
        self._await_live(self.newest)
        self.spans.append((self.newest, started, time.monotonic()))

    def rollback(self, http: httpx.Client) -> tuple[float, float]:
        """Ask the admin API for the previous version. Returns (start, end), monotonic. The hold is ended afterwards."""
        started = time.monotonic()
        answer = http.post(f"/admin/agents/{AGENT}/rollback", json={})
        ended = time.monotonic()
        answer.raise_for_status()
        with self.journal.write() as session:
            session.get_one(AgentRow, AGENT).held = None
        return started, ended

    @property
    def admin_key(self) -> str:
        return admin_key_file(self.settings).read_text(encoding="utf-8").strip()

    def admin(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.admin_key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=30)

    def _await_live(self, version: int) -> None:
        deadline = time.monotonic() + 60
        while self.live() != version:
            if time.monotonic() > deadline:
                with self.journal.read() as session:
                    row = lifecycle.version(session, AGENT, version)
                    raise SystemExit(f"v{version} did not go live within 60 s: {row.state}, {row.reason}")
            time.sleep(0.01)  # each look takes processor time from the streams


@contextmanager
def running(folder: Path, n_voices: int = 24, **flags: Any) -> Iterator[Stand]:
    """Start all parts one after the other and end them with the block.

    `flags` are dotted settings with `__` for the dot.
    """
    given = {name.replace("__", "."): value for name, value in flags.items()}
    defaults = {
        "state_dir": str(folder),
        "log_format": "json",
        "engine.port": free_port(),
        "engine.max_lora_rank": voices.RANK,
        "engine.max_model_len": 1024,
        "gateway.port": free_port(),
    }
    settings = config.load(flags=defaults | given)
    stand = Stand(settings, prepare(settings), voices.ensure(n_voices))
    environment = {**os.environ, **config.to_environment(settings), "PYTHONUNBUFFERED": "1"}
    run = [sys.executable, "-m", "burnish", "run"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a benchmark that is ended takes its parts with it
    with ExitStack() as stack:

        def start(name: str, command: list[str], url: str = "") -> None:
            stack.enter_context(process(folder / f"{name}.log", command, environment, url))

        start("engine", [*run, "engine"], f"http://127.0.0.1:{settings.engine.port}/health")
        for i in range(settings.gateway.processes):
            start(f"gateway-{i}", [*run, "gateway"], f"http://127.0.0.1:{settings.gateway.port}/healthz")
        start("ingester", [*run, "ingester"])
        start("swapper", [sys.executable, "-m", "benchmarks.adapters.swapper"])
        deadline = time.monotonic() + PATIENCE
        while len(list(settings.run_dir.glob("gateway-*.json"))) < settings.gateway.processes:
            if time.monotonic() > deadline:
                raise SystemExit(f"the gateways did not start within {PATIENCE:.0f} s; see the logs in {folder}")
            time.sleep(0.05)
        try:
            yield stand
        finally:
            stand.journal.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def process(log: Path, command: list[str], environment: Mapping[str, str], url: str) -> Iterator[None]:
    """A process whose output goes to `log`. It is ready once `url` answers, and ends with the block."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while url and not _answers(url):
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{' '.join(command[1:])} does not answer:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
