"""One keep-alive connection to an engine: HTTP/1.1, one request at a time, parsed by httptools.

A general client costs a third of the gateway's time on a small request (decision 5). This one leaves out what an engine
never uses: redirects, cookies, compression, proxies, trailers. If nobody reads an answer, receiving stops at
`HIGH_WATER` bytes. So a slow client slows its engine stream and does not fill the gateway's memory.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import cast

import httptools

HIGH_WATER = 256 * 1024
LOST = {"TCP_USER_TIMEOUT": 15_000, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""How the system notices within 15 to 25 s that an engine's machine or network is gone. A machine that is there answers
its packets, however long its engine thinks.
"""


class ConnectionBroken(OSError):
    """The connection ended, or was silent for too long, before the answer was whole."""


class Connection(asyncio.Protocol):
    """Made by the pool. Call `ask`, then `read` or `pieces`. `is_reusable` says whether another request may follow."""

    def __init__(self, read_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._read_timeout = read_timeout
        self._waiter: asyncio.Future[None] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._is_complete = True
        self._must_close = False
        self._has_status = self._has_length = False
        self.status = 0
        self.idle_since = 0.0

    async def ask(self, head: bytes, body: bytes, meanwhile: Callable[[], None] | None = None) -> None:
        """Send one request and wait for the status of its answer. `meanwhile` is called once the request is sent."""
        self._parts, self._size, self.status = [], 0, 0
        self._is_complete = self._has_status = self._has_length = False
        self._heard_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._read_timeout, self._check_silence)
        if len(body) > 65536:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)
        if meanwhile is not None:
            meanwhile()
        while not self._has_status:
            await self._wait()

    async def read(self) -> bytes:
        """The whole body."""
        parts: list[bytes] = []
        while not self._is_complete:
            await self._wait()
            if self._is_paused:
                parts += self._take()
        parts += self._take()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            if self._parts:
                parts = self._take()
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            elif self._is_complete:
                return
            else:
                await self._wait()

    @property
    def is_reusable(self) -> bool:
        return self._is_complete and self._error is None and not self._must_close and not self._transport.is_closing()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()

    def rest(self) -> None:
        """Wait in the pool. The read time-out does not apply here."""
        self.idle_since = self._loop.time()

    def _take(self) -> list[bytes]:
        parts, self._parts, self._size = self._parts, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return parts

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not self._is_complete:
            raise self._error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_silence(self) -> None:
        if self._is_complete:  # the next request sets the timer again: one for each would cost more than this look
            self._timer = None
            return
        left = self._heard_at + self._read_timeout - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence)
            return
        self._timer = None
        self._error = ConnectionBroken(f"no byte for {self._read_timeout:.0f} s")
        self._transport.abort()
        self._wake()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # a request leaves at once, ahead of the other work of the loop
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in LOST.items():
            if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
                opened.setsockopt(socket.IPPROTO_TCP, option, value)

    def connection_lost(self, error: Exception | None) -> None:
        # the end of the connection is the end of such a body
        if error is None and self._has_status and not self._has_length:
            self._is_complete = self._must_close = True
        self._error = self._error or ConnectionBroken(str(error) if error else "the engine closed the connection")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._is_complete:  # no request is open, so this is no answer
            self._must_close = True
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = ConnectionBroken(f"not HTTP: {error}")
            self._transport.abort()
        self._wake()

    # httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._must_close = not self._parser.should_keep_alive()
        self._has_status = True

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._has_status and self.status >= 200:
            self._is_complete = True
