"""The gateway process: one event loop, from bind to a graceful end.

On SIGTERM or Ctrl-C it stops accepting, lets running replies end for `GRACE` seconds, records the rest as aborted,
closes its segment and exits with status 0. It refuses to listen beyond loopback if there is no inference key.
"""

import gc
import resource
import signal
import socket
import sys
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from burnish import serving_table as table
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.keys import UI, Scope
from burnish.server.gateway.access.host_guard import is_loopback
from burnish.server.gateway.app import REPLIES, create_app
from burnish.server.gateway.http.protocol import Protocol

GRACE = 20
KEEP_ALIVE = 75
"""Seconds. Longer than clients keep an idle connection (httpx, and so `openai`: 5 s), so that the client closes it.
With 5 s on both sides, a request sometimes met a connection that was just being closed (2 of 2736 in a demo).
"""
log = structlog.get_logger(__name__)


MAX_CONNECTIONS = 10_000
"""Clients' connections of one process, if the system allows it as many open files."""
SWITCH_SECONDS = 0.0005
"""Seconds after which a thread gives Python's lock to a waiting one, Python's own being 5 ms. A scrape or an admin
request runs in a thread, and replies would wait for it so long at every turn of the loop.
"""
FILES = 256
"""Open files that are neither a client's connection nor an engine's."""


class GatewayProtocol(Protocol):
    """The protocol, with a short way to each route that makes replies."""

    short_ways = frozenset(path.encode() for path in REPLIES)


def check_bind(settings: Settings) -> None:
    """Raises ConfigError if the gateway could be reached from elsewhere without any inference key."""
    host = settings.gateway.host
    if is_loopback(host):
        return
    keys = table.watch(settings.run_dir / "routes.json").current().keys
    clients = [key for key in keys.values() if Scope.ADMIN not in key.scopes and key.key_id != UI]
    if not any(key.covers(Scope.INFERENCE) for key in clients):
        raise ConfigError(
            f"gateway.host is {host!r}, which others can reach, and there is no inference key; make one with "
            "`burnish keys create --scope inference`, or set gateway.host to 127.0.0.1"
        )


def run(settings: Settings, fallback: ASGIApp | None = None) -> None:
    """Serve until told to stop."""
    check_bind(settings)
    gateway = settings.gateway
    config = uvicorn.Config(
        create_app(settings, fallback),
        host=gateway.host,
        port=gateway.port,
        loop="uvloop",
        http=GatewayProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        backlog=2048,
        timeout_keep_alive=KEEP_ALIVE,
    )
    GatewayProtocol.max_connections = max_connections()
    # uvicorn raises the signal again after it has shut down; with the default action the process would die of it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)
    _settle_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    log.info("gateway listening", host=gateway.host, port=gateway.port)
    uvicorn.Server(config).run(sockets=[_shared(gateway.host, gateway.port)] if gateway.processes > 1 else None)
    log.info("gateway stopped")


def max_connections() -> int:
    """How many clients' connections leave files for as many to the engines. Raises the system's soft limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS + FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, (soft - FILES) // 2))


def _settle_memory() -> None:
    """Objects from start-up stay for ever, so the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _shared(host: str, port: int) -> socket.socket:
    """A socket on a port that several processes share. The system spreads the connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"gateway.port: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal: uvicorn has its own handler while it runs, and raises the signal again afterwards."""
