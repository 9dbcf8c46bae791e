"""What one connection may cost: bytes around a body, time for a head and a body, and its place among the others.

uvicorn 0.54 bounds none of these: it kept a header of 60 MiB, and a client that says nothing stayed for ever. One timer
serves a connection for its whole life, whatever is waited for.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from burnish.server import peer

MAX_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""
MAX_FRAMING = 2**20
"""Bytes around a chunked body (sizes, extensions, trailers), which may also be no more than the body and `MAX_HEAD`."""
HEAD_SECONDS = 20.0
"""For the head of a connection's first request, from the connection on. A later head has this and the keep-alive."""
BODY_SECONDS = 30.0
MIN_BODY = 960 * 1024
"""Bytes of a body that must arrive in `BODY_SECONDS`, 32 KiB/s: the longest body holds its memory for 17 minutes at
most. Reading that the gateway itself has paused does not count.
"""


class _Refused(Exception):
    """Stops the parser."""


class _NoTrailers(list[Any]):
    def append(self, item: Any) -> None:
        """Trailers are not kept."""


class BoundedProtocol(HttpToolsProtocol):
    """One client's connection. If there are more than `max_connections` (0: any number), one without a request under
    way is closed.
    """

    max_connections: int = 0
    _is_idle = False
    _idle_since = 0.0
    _watched: object = None
    _n_watched = 0
    _n_body = 0
    _n_body_before = 0
    _n_framing = 0
    _n_chunk = 0
    _refusal = 400

    @property
    def _is_head_open(self) -> bool:
        """True before the head of a request is complete."""
        return self.scope is None or "method" not in self.scope

    @property
    def is_waiting(self) -> bool:
        """True if no request of this client is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer.Peer(self.server, self.client)
        self.timeout_keep_alive_task = self._check_in(HEAD_SECONDS)
        if self.max_connections and len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self._n_framing = 0
        self._n_chunk, n_before = len(data), self._n_body
        HttpToolsProtocol.data_received(self, data)
        self._n_framing += self._n_chunk - (self._n_body - n_before)
        if self._n_framing > MAX_HEAD:
            most = min(MAX_FRAMING, MAX_HEAD + self._n_body - self._n_body_before)
            if self._n_framing > most and not self.transport.is_closing():
                self.refuse(431)

    def on_headers_complete(self) -> None:
        if self._n_framing + self._n_chunk > MAX_HEAD and self._head_size() > MAX_HEAD:
            self._refusal = 431
            raise _Refused
        self._n_framing, self._n_body_before = 0, self._n_body
        self.scope[peer.NAME] = self.peer  # type: ignore[literal-required]
        self.start_request()
        self.headers = _NoTrailers()

    def start_request(self) -> None:
        """The head is complete."""
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_body += len(body)
        self.take_body(body)

    def take_body(self, body: bytes) -> None:
        """A part of the body arrived."""
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if self._refusal == 400:
            super().send_400_response(msg)
        else:
            self.refuse(self._refusal)

    def refuse(self, status: int) -> None:
        """Answer the request at hand with `status` alone, unless an answer has begun, and close."""
        is_free = self.is_waiting if self._is_head_open else not (self.cycle.response_started or self.pipeline)
        if is_free:
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def on_response_complete(self) -> None:
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            if timer is not None:
                timer.cancel()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self.timeout_keep_alive_task = timer
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._is_idle, self._idle_since = True, self.loop.time()
        self.timeout_keep_alive_task = timer or self._check_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        left = self._patience()
        if left is None:  # the end of the answer sets the timer again
            return
        if left > 0:
            self.timeout_keep_alive_task = self._check_in(left)
        elif self._is_idle or self.scope is None:
            self.transport.close()
        else:
            self.refuse(408)

    def _patience(self) -> float | None:
        """Seconds that the client may still take. None if it is the client who waits."""
        if self._is_idle:
            return self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self.cycle is None:
            return 0.0
        is_new, self._watched = self._watched is not self.scope, self.scope
        if self._is_head_open:
            if not self.cycle.response_complete:
                return None
            return HEAD_SECONDS if is_new else 0.0
        if not self.cycle.more_body:
            return None
        n_new, self._n_watched = self._n_body - self._n_watched, self._n_body
        return BODY_SECONDS if is_new or self.flow.read_paused or n_new >= MIN_BODY else 0.0

    def _unset_keepalive_if_required(self) -> None:
        self._is_idle = False

    def _check_in(self, seconds: float) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _make_room(self) -> None:
        """Close another connection that waits, else refuse this one."""
        for other in self.connections:
            if not isinstance(other, BoundedProtocol) or other is self:
                continue
            if other.is_waiting and not other.transport.is_closing():
                other.transport.close()
                return
        self.refuse(503)
