"""The peer: litellm's proxy in its own environment, because its dependencies conflict with Burnish's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gateway import servers

VERSION = "1.106.2"
_CONFIG = """
model_list:
  - model_name: agent
    litellm_params:
      model: openai/base
      api_base: {upstream}/v1
      api_key: none
litellm_settings:
  telemetry: false
  drop_params: true
"""


def install(folder: Path) -> Path:
    """The environment's Python. The first call creates the environment, later calls reuse it."""
    python = folder / "venv" / "bin" / "python"
    mark = folder / f"ready-{VERSION}"
    if mark.exists():
        return python
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    environment = {**os.environ}
    if "PIP_FIND_LINKS" in environment:
        environment["UV_FIND_LINKS"] = environment["PIP_FIND_LINKS"]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [uv, "venv", "--clear", "-q", "-p", sys.executable, str(folder / "venv")], check=True, env=environment
    )
    wanted = [f"litellm[proxy]=={VERSION}"]
    subprocess.run([uv, "pip", "install", "-q", "-p", str(python), *wanted], check=True, env=environment)
    mark.touch()
    return python


@contextmanager
def proxy(folder: Path, port: int, upstream: str, cache: Path) -> Iterator[servers.Server]:
    """A running proxy, one worker, pinned to the gateway's core."""
    python = install(cache)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "litellm.yaml"
    config.write_text(_CONFIG.format(upstream=upstream))
    command = [str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "DO_NOT_TRACK": "1"}
    environment["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = (
        "true"  # it listens on loopback, and keys would only slow it
    )
    log = folder / "litellm.log"
    with servers.running(
        "litellm", command, port, servers.GATEWAY_CORE, log, environment, "/health/liveliness"
    ) as server:
        yield server
