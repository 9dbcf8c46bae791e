"""Our gateway as deployed: the real process, recording on, one agent, default limits."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.gateway import servers
from burnish import serving_table
from burnish.adapters.serving.prepare import prepare
from burnish.config import Engine, Gateway, Settings, to_environment
from burnish.keys import Scope, mint

AGENT = "agent"


def settings_for(folder: Path, port: int, upstream: str) -> Settings:
    """Settings of a gateway with its state in `folder`."""
    return Settings(
        state_dir=folder,
        engine=Engine(urls=(upstream,)),
        gateway=Gateway(port=port),
    )


@contextmanager
def gateway(
    folder: Path, port: int, upstream: str, module: str = "burnish"
) -> Iterator[tuple[servers.Server, Settings]]:
    """A running gateway with a new state, pinned to its core. `module` is its command line."""
    shutil.rmtree(folder, ignore_errors=True)
    settings = settings_for(folder, port, upstream)
    with serving(settings, module) as server:
        yield server, settings


@contextmanager
def serving(settings: Settings, module: str = "burnish") -> Iterator[servers.Server]:
    """The same with the state that is there."""
    prepare(settings).close()
    assert AGENT in serving_table.watch(settings.run_dir / "routes.json").current().agents
    command = [sys.executable, "-m", module, "run", "gateway"]
    log, port = settings.state_dir / "gateway.log", settings.gateway.port
    environment = to_environment(settings) | {"PYTHONUNBUFFERED": "1"}
    with servers.running("gateway", command, port, servers.GATEWAY_CORE, log, environment, "/healthz") as server:
        yield server


def talking_key(settings: Settings) -> str:
    """A new inference key of a running gateway."""
    secret, key = mint([Scope.INFERENCE])
    serving_table.update(
        settings.run_dir / "routes.json", lambda table: replace(table, keys={**table.keys, key.digest: key})
    )
    return secret
