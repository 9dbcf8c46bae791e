"""The clients' side of HTTP: uvicorn's protocol, with a shorter way for requests that ask for a reply.

Such a request gets a `Cycle`: its body is not copied, the head and the first bytes of its answer leave in one write,
and it leaves no callback in the loop. All other requests, and requests with an unusual head, take uvicorn's own way.
Parsing, pipelining, back-pressure and shutdown are uvicorn's for both.
"""

import asyncio
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from burnish.server.bounds import BoundedProtocol
from burnish.server.gateway.http.coalesce import CoalescedSend

HIGH_WATER = 1024 * 1024
"""Bytes of a body that may wait to be read. A request for a reply is read at once and whole. Stopping at uvicorn's 64
KB cost longer requests two turns of the loop.
"""


class Cycle(RequestResponseCycle):
    """One POST and its answer."""

    def __init__(self, protocol: "Protocol", *, keep_alive: bool) -> None:
        super().__init__(
            scope=protocol.scope,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=False,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=protocol.on_response_complete,
        )
        self._corked: CoalescedSend = protocol.corked
        self._tasks = protocol.tasks
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self.task: asyncio.Task[None] | None = None

    async def run_asgi(self, app: ASGI3Application) -> None:
        try:
            await app(self.scope, self.receive, self.send)
            if not (self.response_complete or self.disconnected):
                raise RuntimeError("the application has returned before its answer was whole")
        except BaseException as error:
            self.logger.error("Exception in ASGI application", exc_info=error)
            if self.response_started:
                self.transport.close()
            else:
                await self.send_500_response()
        finally:
            self.on_response = _nothing
            if self.task is not None:
                self._tasks.discard(self.task)

    def take(self, part: bytes) -> None:
        """A part of the body arrived."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > HIGH_WATER:
            self.flow.pause_reading()
        self.message_event.set()

    async def receive(self) -> ASGIReceiveEvent:
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self.message_event.is_set():
                await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        parts, self._parts, self._size = self._parts, [], 0
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        event: Any = message
        kind = event["type"]
        if not self.response_started:
            if kind != "http.response.start":
                raise RuntimeError(f"expected http.response.start, got {kind}")
            self.response_started = True
            self._head = self._head_of(event["status"], [*self.default_headers, *event.get("headers", ())])
            return
        if self.response_complete or kind != "http.response.body":
            raise RuntimeError(f"unexpected {kind}: the answer has {'ended' if self.response_complete else 'begun'}")
        self._send_body(event.get("body", b""), has_more=event.get("more_body", False))

    def _send_body(self, body: bytes, *, has_more: bool) -> None:
        head, self._head = self._head, b""
        if self.chunked_encoding:
            chunk = (b"%x\r\n" % len(body), body, b"\r\n") if body else ()
            out = b"".join((head, *chunk, b"" if has_more else b"0\r\n\r\n"))
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (self.expected_content_length and not has_more):
                raise RuntimeError(f"content-length: off by {-self.expected_content_length} bytes")
            out = head + body
        if out:
            self._corked.write_now(out)
        if not has_more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _head_of(self, status: int, headers: Collection[tuple[bytes, bytes]]) -> bytes:
        lines = [STATUS_LINE[status]]
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            raise RuntimeError("a header's value holds a control character")
        self.chunked_encoding = True
        closes = False
        for name, value in headers:
            name = _checked(name)
            if name == b"content-length":
                self.chunked_encoding = False
                self.expected_content_length = int(value)
            elif name == b"connection" and b"close" in value.lower():
                closes, self.keep_alive = True, False
            lines += (name, b": ", value, b"\r\n")
        if not (self.keep_alive or closes):
            lines.append(b"connection: close\r\n")
        lines.append(b"transfer-encoding: chunked\r\n\r\n" if self.chunked_encoding else b"\r\n")
        return b"".join(lines)


class Protocol(BoundedProtocol):
    """One client's connection. Requests to the paths in `short_ways` (as sent) get a Cycle."""

    short_ways: frozenset[bytes] = frozenset()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = self.corked = CoalescedSend(transport)

    def start_request(self) -> None:
        if self.url not in self.short_ways or not self._is_plain():
            super().start_request()
            return
        path = self.url.decode("ascii")
        self.scope |= {"method": "POST", "path": path, "raw_path": self.url, "query_string": b""}
        before, self.cycle = self.cycle, Cycle(self, keep_alive=self.parser.should_keep_alive())
        # without the middleware that reads X-Forwarded-For, because nothing here uses an address
        app: Any = self.config.app
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def take_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not isinstance(cycle, Cycle):
            super().take_body(body)
        elif not cycle.response_complete:
            cycle.take(body)

    def _is_plain(self) -> bool:
        """True if nothing about the head needs uvicorn's own way."""
        return not (
            self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
            or self.expect_100_continue
            or self.parser.should_upgrade()
            or self.root_path
            or self.limit_concurrency is not None
        )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not isinstance(cycle, Cycle):
            super()._start_asgi_task(cycle, app)
            return
        cycle.task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(cycle.task)


def _nothing() -> None:
    pass


@lru_cache(maxsize=256)
def _checked(name: bytes) -> bytes:
    if HEADER_RE.search(name):
        raise RuntimeError(f"not a header's name: {name!r}")
    return name.lower()
