"""A warm-up at a gateway's start: an admin request that changes nothing, so that the first real one is fast.

On a busy machine the first admin request of a process took 0.4 s, because of imports, SQL compilation and connecting.
Later ones took a tenth of that, and the first may be an urgent rollback. The request asks for a rollback that expects a
version which no agent has live.
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
"""The version that the request expects to be live."""
log = structlog.get_logger(__name__)


async def warm_up(app: ASGIApp, settings: Settings) -> int:
    """The status of the answer: 409. 0 if there was no answer; the log says why, and the gateway goes on."""
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
