"""Several gateway processes on one port: each connection reaches one of them, and all follow the alias together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gateways import make_keys, write_table

from burnish import serving_table as table
from burnish.config import Engine, Gateway, Settings, to_environment
from burnish.serving_table import AgentRoute
from burnish.testing import StubEngine

RUN = "from burnish.config import load; from burnish.server.gateway.process import run; run(load())"
N = 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with StubEngine(needs_loaded=False) as engine:
        settings = Settings(
            state_dir=tmp_path,
            engine=Engine(urls=(engine.url,)),
            gateway=Gateway(port=free_port(), processes=N),
        )
        write_table(settings, (engine.url,), make_keys()[1])
        command = [sys.executable, "-c", RUN]
        running = [subprocess.Popen(command, env={**os.environ, **to_environment(settings)}) for _ in range(N)]
        try:
            deadline = time.monotonic() + 60
            while len(list(settings.run_dir.glob("gateway-*.json"))) < N or not is_up(settings):
                assert time.monotonic() < deadline, "the gateways did not start"
                assert all(process.poll() is None for process in running)
                time.sleep(0.05)
            yield settings
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(30) for process in running]
        assert codes == [0] * N


def is_up(settings: Settings) -> bool:
    try:
        return httpx.get(url(settings) + "/healthz").status_code == 200
    except httpx.TransportError:
        return False


def url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.gateway.port}"


def version_spoken(settings: Settings, client: httpx.Client) -> str:
    body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}
    return client.post(url(settings) + "/v1/chat/completions", json=body).headers["x-burnish-version"]


def test_all_gateways_on_a_port_follow_an_alias_within_100_ms(settings: Settings) -> None:
    clients = [httpx.Client() for _ in range(24)]  # new connections, which the system spreads
    try:
        assert {version_spoken(settings, client) for client in clients} == {"agent@v2"}
        served_by = {path.name.split("-")[1] for path in settings.segments_dir.glob("*.seg") if path.stat().st_size}
        assert len(served_by) >= 2, "every connection went to one process"
        for version in (1, 2, 0):
            now = table.watch(settings.run_dir / "routes.json").current()
            agent = AgentRoute("agent", live=version, previous=1, loaded=(1, 2))
            write_table(settings, now.engines, now.keys, agents={"agent": agent})
            time.sleep(0.1)
            assert {version_spoken(settings, client) for client in clients} == {f"agent@v{version}"}
    finally:
        for client in clients:
            client.close()
