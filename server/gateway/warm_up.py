"""A rollback that cannot be, at a gateway's start: so that the first real one finds all imported, compiled and
connected.

On a busy machine the first admin request of a process took 0.4 s, later ones a tenth of that; and the first may well be
the one for which somebody is in a hurry. Nothing is changed by it: it expects a version to be live that no agent has.
"""

import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import structlog
from starlette.types import ASGIApp

from burnish.adapters.serving.prepare import admin_key_file
from burnish.config import Settings
from burnish.keys import ensure_secret

NEVER = 2**31 - 1
"""The version that is expected."""
log = structlog.get_logger(__name__)


async def warm_up(app: ASGIApp, settings: Settings) -> int:
    """The status of the answer: 409. 0 where there was none: the log tells why, and the gateway goes on."""
    body = json.dumps({"expected": NEVER}).encode()
    key = ensure_secret(admin_key_file(settings))  # made before any gateway starts (adapters/serving/prepare.py)
    path = f"/admin/agents/{settings.agent.name}/rollback"
    headers = {
        "host": f"127.0.0.1:{settings.gateway.port}",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", settings.gateway.port),
        "state": {"request_id": "rehearsal"},
    }
    waiting: Iterator[MutableMapping[str, Any]] = iter(
        [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]
    )
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return next(waiting)

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    try:
        await app(scope, receive, send)
    except Exception as error:
        log.warning("the admin API could not be rehearsed", error=repr(error))
    return statuses[0] if statuses else 0
