"""The launcher for a Ray cluster: a part runs as an actor around an entry point, wherever the cluster has room.

Ray is imported only here, and only if a cluster is used. An actor does not outlive the process that started it: Ray
ends the actors of a driver that is gone, and a cluster that was started here ends with it.
"""

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog

from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.processes.supervisor import Part, Running

LOCAL = "local"
STORE_BYTES = 80 * 2**20
"""Ray's shared memory for a cluster started here. Actors pass nothing through it."""
CONNECT_SECONDS = 5.0
log = structlog.get_logger(__name__)


class Entry(Protocol):
    """What an actor runs: an importable function that returns some time after `is_stopping()`."""

    def __call__(self, settings: Settings, is_stopping: Callable[[], bool]) -> None: ...


class RayLauncher:
    """Parts as actors of the cluster at `address` ("local" starts one on this machine), each running `entry`.

    A part's settings are those of its environment; its command is not used. Its output is forwarded by Ray itself.
    Use it as a context manager. Raises ConfigError where Ray is not installed or the cluster does not answer.
    """

    def __init__(self, address: str, entry: Entry) -> None:
        self._address = address
        self._entry = entry

    def __enter__(self) -> "RayLauncher":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "judge.ray: Ray is not installed here; install burnish with its `cpu` or `gpu` extra"
            ) from error
        is_local = self._address == LOCAL
        if not is_local:
            _must_answer(self._address)
        cluster: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE_BYTES} if is_local else {}
        try:
            ray.init(
                address=LOCAL if is_local else self._address, namespace="burnish", logging_level="warning", **cluster
            )
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"judge.ray: no Ray cluster answers at {self._address!r}: {error}") from error
        self._actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2, scheduling_strategy="SPREAD")(Body)
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        ray.shutdown()

    async def close(self) -> None:
        """It keeps nothing in reserve."""

    async def start(self, part: Part) -> Running:
        actor = self._actor.options(name=f"{part.name}-{os.getpid()}-{os.urandom(3).hex()}").remote()
        own_environment = {name: value for name, value in part.environment.items() if name.startswith("BURNISH_")}
        return _RunningActor(part, actor, actor.run.remote(self._entry, own_environment))


def _type_and_place(error: Exception) -> str:
    """What failed in an actor, and where. Ray's text ends with the error's own message, which may quote a turn."""
    kind = type(getattr(error, "cause", None) or error).__name__
    places = re.findall(r'File "([^"\n]+)", line (\d+)', str(error))
    return f"{kind} at {places[-1][0]}:{places[-1][1]}" if places else kind


def _must_answer(address: str) -> None:
    """Fail at once: Ray itself would look for an absent cluster for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"judge.ray: expected HOST:PORT of a Ray cluster, or `local`, got {address!r}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(f"judge.ray: no Ray cluster answers at {address!r}: {error}") from error


class Body:
    """The actor. `run` runs in one of its threads, `stop` in another."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def run(self, entry: Entry, environment: Mapping[str, str]) -> int:
        """Run the entry point until it ends."""
        from burnish import config

        os.environ.update(environment)
        entry(config.load(), self._stopping.is_set)
        return 0

    def stop(self) -> None:
        self._stopping.set()


class _RunningActor:
    def __init__(self, part: Part, actor: Any, result: Any) -> None:
        self._part = part
        self._actor = actor
        self._result = result
        self._ended = asyncio.Event()

    @property
    def group(self) -> int | None:
        return None

    async def lines(self) -> None:
        """Nothing to forward: Ray prints what its actors print."""
        await self._ended.wait()

    async def wait(self) -> int:
        from ray.exceptions import RayActorError, RayError

        try:
            return int(await asyncio.wrap_future(self._result.future()))
        except RayActorError as error:
            log.warning("an actor is gone", part=self._part.name, error=str(error).splitlines()[0])
            return -signal.SIGKILL
        except RayError as error:
            log.error("an actor failed", part=self._part.name, error=_type_and_place(error))
            return 1
        finally:
            self.kill()
            self._ended.set()

    def interrupt(self) -> None:
        self._actor.stop.remote()

    def kill(self) -> None:
        import ray

        ray.kill(self._actor, no_restart=True)
