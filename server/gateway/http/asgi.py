"""Raw ASGI in a few functions: read a header, read a bounded body, answer with JSON.

A body that is too large is refused without being held in memory: by its declared length before anything of it is read,
or as soon as it passes the limit.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope, Send

from burnish.errors import RequestError
from burnish.server.gateway.http.error_envelope import TOO_LARGE

_HEADERS = "burnish.headers"
MAX_BODY_BYTES = 32 * 2**20
"""Largest request body. A larger one gets 413."""
MAX_ARCHIVE_BYTES = 4 * 2**30
"""Largest archive of an adapter, as sent and as unpacked."""
Headers = Iterable[tuple[bytes, bytes]]


class ClientGone(Exception):
    """The client closed its connection, so nobody is left to answer."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header called `name` (lower case). None if there is none."""
    return headers_of(scope).get(name)


def headers_of(scope: Scope) -> dict[bytes, str]:
    """Every header by its lower-case name, the first of repeated ones. Parsed once for each request."""
    found: dict[bytes, str] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = {name: str(value, "latin-1").strip() for name, value in reversed(scope["headers"])}
    return found


def check_declared(scope: Scope, limit: int) -> None:
    """Raises RequestError (413) if the body's declared length is above `limit`."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdecimal() and (len(declared) > 15 or int(declared) > limit):
        raise _too_large(f"{declared[:20]} bytes", limit)


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole request body, at most `limit` bytes."""
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


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application that is to find `body`, which was read before."""
    is_given = False

    async def given() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given


async def send_bytes(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """A whole JSON answer."""
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_json(send: Send, status: int, tree: Any, headers: Headers = ()) -> None:
    await send_bytes(send, status, msgspec.json.encode(tree), headers)


def _too_large(got: str, limit: int) -> RequestError:
    return RequestError(f"request body: got {got}, expected at most {limit}; send less", code=TOO_LARGE)
