"""The process of the pages: binds a port and serves until it is told to end."""

import socket
from collections.abc import Collection
from pathlib import Path

import uvicorn

from burnish.server.bounds import BoundedProtocol
from burnish.server.ui.admin_api import make_http
from burnish.server.ui.site import Site

GRACE = 3


class PagesProtocol(BoundedProtocol):
    """The pages' connections have the same bounds as the gateway's."""

    max_connections = 500


def run(
    port: int,
    gateway: str,
    *,
    host: str = "127.0.0.1",
    allowed_hosts: Collection[str] = (),
    listener: socket.socket | None = None,
    own_key_file: Path | None = None,
    link_file: Path | None = None,
) -> None:
    """Serve the pages for the gateway at that URL until told to stop. `allowed_hosts` are names besides loopback and
    `host` under which a browser may ask. `listener` is a socket that listens there already.
    """
    site = Site(make_http(gateway), own_key_file=own_key_file, link_file=link_file)
    config = uvicorn.Config(
        site.app({host, *allowed_hosts}),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        http=PagesProtocol,
    )
    uvicorn.Server(config).run(sockets=None if listener is None else [listener])
