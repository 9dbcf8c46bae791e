"""Raw ASGI in a few functions: read a header, read a bounded body, answer with JSON, notice that the client left.

A body larger than allowed is refused without being held in memory: by its declared length, else as soon as it has passed
the limit.
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import RequestError
from server.envelope import TOO_LARGE

PATIENCE = 0.05
_HEADERS = "burnish.headers"
Headers = Iterable[tuple[bytes, bytes]]


class ClientGone(Exception):
    """The client closed its connection; nobody is left to answer."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header called `name` (lower case), None where there is none."""
    return headers_of(scope).get(name)


def headers_of(scope: Scope) -> dict[bytes, str]:
    """Every header by its lower-case name; of repeated ones the first. Taken apart once for each request."""
    found: dict[bytes, str] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = {name: str(value, "latin-1").strip() for name, value in reversed(scope["headers"])}
    return found


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole request body, at most `limit` bytes."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdecimal() and (len(declared) > 15 or int(declared) > limit):
        raise _too_large(f"{declared} bytes", limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(f"more than {limit} bytes", limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def send_bytes(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """A whole JSON answer."""
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_json(send: Send, status: int, tree: Any, headers: Headers = ()) -> None:
    await send_bytes(send, status, msgspec.json.encode(tree), headers)


class ClientWatch:
    """Cancels the surrounding block when the client leaves, and raises ClientGone out of it.

    Watching begins after `PATIENCE` seconds: most replies have ended by then, and a task for each would cost them dear.
    Call `settle` before the last byte is sent: from then on a disconnect is only the normal end of the exchange.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_settled = False
        self._is_gone = False

    def settle(self) -> None:
        self._is_settled = True

    async def __aenter__(self) -> "ClientWatch":
        task = asyncio.current_task()
        assert task is not None, "an ASGI application runs inside a task"
        self._task = task
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and isinstance(error, asyncio.CancelledError) and self._task.uncancel() == 0:
            raise ClientGone from None

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_settled:
            self._is_gone = True
            self._task.cancel()


def _too_large(got: str, limit: int) -> RequestError:
    return RequestError(
        f"request body: got {got}, expected at most {limit}; send less or raise gateway.max_body_bytes", code=TOO_LARGE
    )
