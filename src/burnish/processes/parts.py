"""The parts of a whole Burnish on one machine, and their health checks."""

import errno
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from burnish import config
from burnish.adapters import model_files
from burnish.errors import ConfigError
from burnish.keys import engine_key
from burnish.processes.beats import Pulse
from burnish.processes.engine_canary import EngineCanary
from burnish.processes.environments import environment_of
from burnish.processes.supervisor import Part

DESCRIPTIONS = {
    "engine": "Run vLLM with the flags Burnish needs.",
    "gateway": "Run the OpenAI-compatible endpoint.",
    "remote": "Talk to the remote model that answers in an agent's place.",
    "ingester": "Move recorded turns from the segments into the journal.",
    "swapper": "Try candidate versions on the engine and make the good ones live.",
    "judge": "Judge recorded turns.",
    "learner": "Train on judged turns.",
    "ui": "Show the pages for people in a browser.",
}


SILENCE = {"ingester": 180.0, "swapper": 60.0, "judge": 60.0, "learner": 300.0}
"""Seconds without a sign of life after which a part is started again. The ingester may wait for a statement, and the
learner's work has long pieces.
"""


def parts_of(settings: config.Settings, environment: Mapping[str, str]) -> list[Part]:
    """The parts that `burnish up` supervises, in the order of starting."""
    from burnish.processes.vllm_server import engine_url

    left_out = {"engine"} if settings.engine.urls else set()
    left_out |= set() if settings.learner.enabled and model_files.lack(settings.engine.model) is None else {"learner"}
    left_out |= set() if settings.remote.model else {"remote"}
    left_out |= set() if settings.gateway.ui_port else {"ui"}
    kinds = [kind for kind in DESCRIPTIONS if kind not in left_out]
    # gateways that share a port are separate parts; a health check reaches any of them
    instances = [
        (kind, f"{kind}-{i}" if i > 1 else kind) for kind in kinds for i in range(1, _n_of(kind, settings) + 1)
    ]
    checks = {
        "engine": engine_url(settings),
        "gateway": gateway_url(settings) + "/healthz",
        "remote": f"http://127.0.0.1:{settings.remote_port}/health",
        "ui": ui_url(settings) + "/healthz",
    }
    key = "" if settings.engine.urls else engine_key(settings)
    patience = {"engine": 900.0}
    # parallel judges are separate parts too; on Ray, `burnish run judge` starts its actors
    alone = {} if settings.judge.ray else {"judge": {"BURNISH_JUDGE__POOL": "1"}}
    return [
        Part(
            name=name,
            command=_command(kind, settings),
            environment=environment_of(kind, settings, environment) | alone.get(kind, {}),
            is_healthy=EngineCanary(checks[kind], key) if kind == "engine" else _answers_at(checks.get(kind)),
            pulse=_pulse_of(kind, settings),
            patience=patience.get(kind, 120.0),
            # the gateway lets running replies end for up to 20 s
            stop_seconds={"gateway": 25.0, "engine": 20.0, "learner": 20.0, "judge": 15.0}.get(kind, 10.0),
            has_spare=kind == "gateway",
        )
        for kind, name in instances
    ]


def listening(host: str, port: int, setting: str) -> socket.socket:
    """A socket that listens there. Raises ConfigError if that is impossible. `setting` is the port's name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ConfigError(
            f"{setting}: port {port} of {host} {reason}; end the process that listens there, or choose another port: "
            f"--set {setting}=…"
        ) from error


def _pulse_of(kind: str, settings: config.Settings) -> Callable[[int], Pulse] | None:
    """How a part is watched that answers no requests. None for one that does, or whose work is elsewhere."""
    is_elsewhere = {"judge": bool(settings.judge.ray), "learner": settings.learner.processes > 1}
    if kind not in SILENCE or is_elsewhere.get(kind, False):
        return None
    return lambda pid: Pulse(settings.run_dir, pid, SILENCE[kind], counts_work=kind == "learner")


def _command(kind: str, settings: config.Settings) -> list[str]:
    n = settings.learner.processes
    if kind != "learner" or n == 1:
        return [sys.executable, "-m", "burnish", "run", kind]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
    return [*launcher, "-m", "burnish", "run", kind]


def _n_of(kind: str, settings: config.Settings) -> int:
    if kind == "judge":
        return 1 if settings.judge.ray else settings.judge.pool
    return settings.gateway.processes if kind == "gateway" else 1


def gateway_url(settings: config.Settings) -> str:
    host = settings.gateway.host
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{settings.gateway.port}"


def ui_url(settings: config.Settings) -> str:
    """Where a browser on this machine finds the pages."""
    return f"http://127.0.0.1:{settings.gateway.ui_port}"


def _answers_at(url: str | None) -> Callable[[], Awaitable[bool]] | None:
    if url is None:
        return None

    async def check() -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return check
